"""What the official Python clients of OpenAI and Anthropic get from a running server.

usage: contract.py http://127.0.0.1:PORT
"""

import json
import sys

import anthropic
import jsonschema
import openai

BASE = sys.argv[1]
client = openai.OpenAI(base_url=f"{BASE}/v1", api_key="none", max_retries=0)
claude = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
QUESTION = [{"role": "user", "content": "What is the capital of Mongolia?"}]
ANSWER = "The capital of Mongolia is Ulaanbaatar."
WEATHER = {
    "name": "get_weather",
    "description": "Get the current weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The city name."}},
        "required": ["city"],
    },
}
# Anthropic's client has no such argument, its form has such a field.
GREEDY = {"extra_body": {"temperature": 0}}
TOOLS = [{"type": "function", "function": WEATHER}]
ASK_WEATHER = [{"role": "user", "content": "What is the weather in La Paz?"}]


def chat(messages, **more):
    return client.chat.completions.create(model="pebble", messages=messages, temperature=0, **more)


def test_chat():
    answer = chat(QUESTION)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_streaming():
    chunks = list(chat(QUESTION, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == ANSWER
    assert chunks[-1].usage.completion_tokens > 3


def test_tool_round_trip():
    first = chat(ASK_WEATHER, tools=TOOLS)
    assert first.choices[0].finish_reason == "tool_calls", first
    call = first.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "La Paz"}
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 23, "weather": "sunny"}'}
    messages = ASK_WEATHER + [first.choices[0].message.model_dump(exclude_none=True), result]
    second = chat(messages, tools=TOOLS)
    assert "23" in second.choices[0].message.content, second


def test_streamed_tool_call():
    chunks = [c for c in chat(ASK_WEATHER, tools=TOOLS, stream=True) if c.choices]
    calls = [call for c in chunks for call in c.choices[0].delta.tool_calls or []]
    assert calls[0].id and calls[0].type == "function" and calls[0].function.name == "get_weather"
    assert json.loads("".join(call.function.arguments for call in calls)) == {"city": "La Paz"}


def test_required_tool():
    answer = chat(QUESTION, tools=TOOLS, tool_choice="required", max_tokens=200)
    call = answer.choices[0].message.tool_calls[0]
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["parameters"])


def test_schema():
    schema = {
        "type": "object",
        "properties": {"capital": {"type": "string", "maxLength": 30}, "sure": {"type": "boolean"}},
        "required": ["capital", "sure"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    answer = chat(QUESTION, response_format=wanted, max_tokens=200)
    assert answer.choices[0].finish_reason == "stop", answer
    jsonschema.validate(json.loads(answer.choices[0].message.content), schema)


def test_log_probabilities():
    answer = chat(QUESTION, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == ANSWER
    for entry in entries:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token, "greedy takes the likeliest"


def test_completions():
    answer = client.completions.create(model="pebble", prompt="The capital of", max_tokens=4, temperature=0)
    assert answer.choices[0].text and answer.usage.completion_tokens <= 4


def test_embeddings():
    # The client asks for base64 unless told otherwise.
    both = client.embeddings.create(model="pebble", input=["a cat", "a dog"])
    plain = client.embeddings.create(model="pebble", input="a cat", encoding_format="float")
    assert len(both.data) == 2 and both.data[0].embedding == plain.data[0].embedding
    assert abs(sum(x * x for x in plain.data[0].embedding) - 1) < 1e-3


def test_responses():
    answer = client.responses.create(model="pebble", input=QUESTION[0]["content"], temperature=0)
    assert answer.output_text == ANSWER and answer.status == "completed"
    with client.responses.stream(model="pebble", input=QUESTION[0]["content"], temperature=0) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert text == ANSWER and stream.get_final_response().output_text == ANSWER


def test_models_and_errors():
    assert [model.id for model in client.models.list()] == ["pebble"]
    for error, more in [
        (openai.BadRequestError, {"model": "pebble", "temperature": -1}),
        (openai.NotFoundError, {"model": "gpt-9"}),
    ]:
        try:
            client.chat.completions.create(messages=QUESTION, **more)
        except error as caught:
            assert caught.code and caught.body["message"]
        else:
            raise AssertionError(f"{error} was not raised")


def test_anthropic():
    said = claude.messages.create(model="pebble", max_tokens=50, messages=QUESTION, **GREEDY)
    assert said.content[0].text == ANSWER and said.stop_reason == "end_turn"
    counted = claude.messages.count_tokens(model="pebble", messages=QUESTION)
    usage = said.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    with claude.messages.stream(model="pebble", max_tokens=50, messages=QUESTION, **GREEDY) as stream:
        assert "".join(stream.text_stream) == ANSWER
        assert stream.get_final_message().stop_reason == "end_turn"


def test_anthropic_tool_round_trip():
    tool = {"name": WEATHER["name"], "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}
    ask = dict(model="pebble", max_tokens=99, tools=[tool], **GREEDY)
    with claude.messages.stream(messages=ASK_WEATHER, **ask) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    use = next(block for block in first.content if block.type == "tool_use")
    assert use.input == {"city": "La Paz"}
    result = {"type": "tool_result", "tool_use_id": use.id, "content": '{"temperature": 23, "weather": "sunny"}'}
    messages = ASK_WEATHER + [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
        {"role": "user", "content": [result]},
    ]
    second = claude.messages.create(messages=messages, **ask)
    assert "23" in second.content[0].text, second


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"{name}: ok")
