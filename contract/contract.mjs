// What the official JavaScript client of OpenAI gets from a running server.
// usage: node contract.mjs http://127.0.0.1:PORT
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const model = "pebble";
const messages = [{ role: "user", content: "What is the capital of Mongolia?" }];
const answer = "The capital of Mongolia is Ulaanbaatar.";

const whole = await client.chat.completions.create({ model, messages, temperature: 0 });
assert.equal(whole.choices[0].message.content, answer);

let text = "";
const stream = await client.chat.completions.create({ model, messages, temperature: 0, stream: true });
for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, answer);

const weather = [{ role: "user", content: "What is the weather in La Paz?" }];
const runner = client.chat.completions.runTools({
  model, messages: weather, temperature: 0, stream: true,
  tools: [{ type: "function", function: {
    name: "get_weather", description: "Get the current weather in a city.", parse: JSON.parse,
    parameters: { type: "object", properties: { city: { type: "string", description: "The city name." } }, required: ["city"] },
    function: ({ city }) => { assert.equal(city, "La Paz"); return '{"temperature": 23, "weather": "sunny"}'; },
  } }],
});
assert.match(await runner.finalContent(), /23/);

const vectors = await client.embeddings.create({ model, input: ["a cat", "a dog"] });
assert.equal(vectors.data.length, 2);
const length = Math.hypot(...vectors.data[0].embedding);
assert.ok(Math.abs(length - 1) < 1e-3, `${length}`);

const likely = await client.chat.completions.create({ model, messages, temperature: 0, logprobs: true, top_logprobs: 2 });
assert.equal(likely.choices[0].logprobs.content.map(entry => entry.token).join(""), answer);

const response = await client.responses.create({ model, input: messages[0].content, temperature: 0 });
assert.equal(response.output_text, answer);
console.log("contract.mjs: ok");
