//! Every route, byte for byte.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::support::{Setup, events, question, spelled, with};

const WEATHER: &str = "<|channel>thought\nI should look.\n<channel|>\
    <|tool_call>call:get_weather{city:<|\"|>La Paz<|\"|>,days:2}<tool_call|><|tool_response>";

fn setup() -> Setup {
    Setup::new(&[
        ("weather", WEATHER),
        ("ponder", "<|channel>thought\nHm, well.<channel|>It is four."),
        ("greet", "Hello, world! How are you?"),
    ])
}

fn tools() -> Value {
    json!([{ "type": "function", "function": {
        "name": "get_weather", "description": "Get the weather", "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": { "type": "string" }, "days": { "type": "integer" } } } } }])
}

fn streamed(request: Value) -> Value {
    with(request, json!({ "stream": true, "stream_options": { "include_usage": true } }))
}

#[test]
fn chat() {
    let server = setup().start();
    let path = "/v1/chat/completions";
    assert_snapshot!("chat", server.post(path, &question("greet")).shown());
    assert_snapshot!("chat_streamed", server.post(path, &streamed(question("greet"))).shown());
    assert_snapshot!("chat_thinking", server.post(path, &question("ponder")).shown());
    let thinking = streamed(question("ponder"));
    assert_snapshot!("chat_thinking_streamed", server.post(path, &thinking).shown());
    let calling = with(question("weather"), json!({ "tools": tools() }));
    assert_snapshot!("chat_calling", server.post(path, &calling).shown());
    assert_snapshot!("chat_calling_streamed", server.post(path, &streamed(calling)).shown());
    let likely = json!({ "logprobs": true, "top_logprobs": 2, "max_tokens": 2 });
    let likely = with(question("greet"), likely);
    assert_snapshot!("chat_logprobs", server.post(path, &likely).shown());
    assert_snapshot!("chat_logprobs_streamed", server.post(path, &streamed(likely)).shown());
}

#[test]
fn guesses_are_counted_and_change_nothing_else() {
    let setup = Setup::new(&[("rhyme", "la la la la la la la la, and no more.")]);
    let ahead = Setup { drafts: 3, ..setup.clone() }.start();
    let path = "/v1/chat/completions";
    assert_snapshot!("chat_drafted", ahead.post(path, &question("rhyme")).shown());
    assert_snapshot!(
        "chat_drafted_streamed",
        ahead.post(path, &streamed(question("rhyme"))).shown()
    );
    let none = ahead.ask(path, &with(question("rhyme"), json!({ "draft": "none" })));
    let (plain, guessed) = (setup.start().chat(&question("rhyme")), ahead.chat(&question("rhyme")));
    assert_eq!((&none["choices"][0]["message"], &guessed), (&plain, &plain));
    let details = |answer: &Value| {
        let details = &answer["usage"]["completion_tokens_details"];
        let count = |key: &str| details[key].as_u64().unwrap();
        (count("accepted_prediction_tokens"), count("rejected_prediction_tokens"))
    };
    assert_eq!(details(&none), (0, 0));
    let one = ahead.ask(path, &with(question("rhyme"), json!({ "draft": { "len": 1 } })));
    let (accepted, rejected) = details(&one);
    assert!(accepted > 0 && rejected > 0, "{one}");
    // A text that a stop cuts short has guessed too.
    let cut = ahead.ask(path, &with(question("rhyme"), json!({ "stop": " and" })));
    assert!(details(&cut).0 > 0, "{cut}");
}

#[test]
fn an_ignored_end_is_no_end() {
    let server = setup().start();
    let forced = json!({ "ignore_eos": true, "max_tokens": 30 });
    let answer = server.ask("/v1/chat/completions", &with(question("greet"), forced));
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 30);
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("Hello, world! How are you?"), "{text}");
}

#[test]
fn guesses_that_cannot_be_had_are_refused() {
    let rhyme = [("rhyme", "la la la")];
    let (without, ahead) =
        (Setup::new(&rhyme).start(), Setup { drafts: 3, ..Setup::new(&rhyme) }.start());
    let completion = json!({ "prompt": "rhyme" });
    for (path, request) in
        [("/v1/chat/completions", question("rhyme")), ("/v1/completions", completion)]
    {
        let post = |server: &crate::support::Server, draft: Value| {
            let answer = server.post(path, &with(request.clone(), json!({ "draft": draft })));
            (answer.status, answer.body.clone())
        };
        assert_eq!(post(&without, json!("none")).0, 200, "nobody guesses, as asked");
        assert_eq!(post(&ahead, json!({ "len": 3 })).0, 200);
        assert_eq!(post(&ahead, json!(null)).0, 200);
        let (status, body) = post(&without, json!({ "len": 1 }));
        assert!(status == 400 && body.contains("--draft"), "{body}");
        let wrong = [json!("ngram"), json!(3), json!({}), json!({ "len": 0 }), json!({ "len": 4 })];
        for draft in wrong.into_iter().chain([json!({ "len": 2, "tree": 2 })]) {
            let (status, body) = post(&ahead, draft.clone());
            assert!(status == 400 && body.contains("\"param\":\"draft\""), "{draft}: {body}");
        }
    }
}

#[test]
fn several_answers_are_each_the_one_that_its_seed_gives() {
    let server = setup().start();
    let path = "/v1/chat/completions";
    let wild = |n: u32| {
        with(
            question("greet"),
            json!({ "n": n, "temperature": 8, "seed": 3,
        "max_tokens": 6, "stop": "zzz" }),
        )
    };
    let three = server.ask(path, &wild(3));
    let texts: Vec<_> = three["choices"].as_array().unwrap().iter().collect();
    assert_eq!(texts.iter().map(|c| c["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    let said = |choice: &Value| choice["message"]["content"].as_str().unwrap().to_owned();
    assert_eq!(said(texts[0]), said(&server.ask(path, &wild(1))["choices"][0]));
    assert!(said(texts[0]) != said(texts[1]) && said(texts[1]) != said(texts[2]), "{three}");
    let used: u64 = three["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((7..=18).contains(&used), "all texts count: {used}");
    let streamed = server.post(path, &streamed(wild(3)));
    let mut gathered = vec![String::new(); 3];
    for chunk in events(&streamed.body) {
        for choice in chunk["choices"].as_array().unwrap() {
            let index = choice["index"].as_u64().unwrap() as usize;
            gathered[index].push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        }
    }
    assert_eq!(gathered, texts.into_iter().map(said).collect::<Vec<_>>());
    let stopped = with(question("greet"), json!({ "n": 2, "stop": "world" }));
    let stopped = server.ask(path, &stopped);
    for choice in stopped["choices"].as_array().unwrap() {
        assert_eq!(said(choice), "Hello, ");
    }
}

#[test]
fn completions() {
    let server = setup().start();
    let path = "/v1/completions";
    let request = json!({ "prompt": "greet: ", "stop": "world", "logprobs": 1 });
    assert_snapshot!("completions", server.post(path, &request).shown());
    assert_snapshot!("completions_streamed", server.post(path, &streamed(request)).shown());
    let echo = json!({ "prompt": "greet: ", "echo": true, "max_tokens": 1 });
    let answer = server.ask(path, &echo);
    assert!(answer["choices"][0]["text"].as_str().unwrap().starts_with("greet: "), "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[test]
fn responses() {
    let server = setup().start();
    let path = "/v1/responses";
    let request = json!({ "input": "greet", "instructions": "Be kind." });
    assert_snapshot!("responses", server.post(path, &request).shown());
    let request = with(request, json!({ "stream": true }));
    assert_snapshot!("responses_streamed", server.post(path, &request).shown());
    let tool = json!({ "type": "function", "name": "get_weather", "parameters": {} });
    let calling = json!({ "input": "weather", "tools": [tool], "stream": true });
    assert_snapshot!("responses_calling_streamed", server.post(path, &calling).shown());
}

#[test]
fn messages() {
    let server = setup().start();
    let path = "/v1/messages";
    let request = json!({
        "max_tokens": 50, "system": "Be kind.", "stop_sequences": ["How"],
        "messages": [{ "role": "user", "content": "greet" }],
    });
    assert_snapshot!("messages", server.post(path, &request).shown());
    let calling = json!({
        "max_tokens": 99, "messages": [{ "role": "user", "content": "weather" }], "stream": true,
        "tools": [{ "name": "get_weather", "input_schema": { "type": "object" } }],
    });
    assert_snapshot!("messages_calling_streamed", server.post(path, &calling).shown());
    let counted = server.ask("/v1/messages/count_tokens", &calling);
    let read = server.ask(path, &with(calling, json!({ "stream": false })));
    let usage = &read["usage"];
    let both = ["input_tokens", "cache_read_input_tokens"].map(|k| usage[k].as_u64().unwrap());
    assert_eq!(counted["input_tokens"], both.iter().sum::<u64>());
    let wrong = server.post(path, &json!({ "messages": [] }));
    assert_snapshot!("messages_refused", wrong.shown());
}

#[test]
fn embeddings() {
    let server = setup().start();
    let path = "/v1/embeddings";
    // The scripted model's hidden state has one number, so its vectors are 1 or -1.
    let request = json!({ "input": ["greet", "ponder"], "pooling": "last" });
    let answer = server.post(path, &request);
    assert_snapshot!("embeddings", answer.shown());
    let request = json!({ "input": "greet", "encoding_format": "base64", "pooling": "last" });
    let encoded = &server.ask(path, &request)["data"][0]["embedding"];
    assert!(["AACAPw==", "AAAAAA=="].contains(&encoded.as_str().unwrap()), "{encoded}");
    for (field, value) in [
        ("input", json!([])),
        ("input", json!("")),
        ("input", json!([1, "x"])),
        ("dimensions", json!(2)),
        ("encoding_format", json!("int8")),
        ("pooling", json!("max")),
    ] {
        let mut request = json!({ "input": "greet" });
        request[field] = value;
        let refused = server.post(path, &request);
        assert_eq!((refused.status, &*refused.param()), (400, field), "{request}");
    }
}

#[test]
fn tokens() {
    let server = setup().start();
    let text = "Hi <turn|>";
    let plain = server.ask("/tokenize", &json!({ "content": text, "parse_special": false }));
    assert_eq!(plain["tokens"].as_array().unwrap().len(), spelled(text));
    let request = json!({ "content": text, "add_special": true, "with_pieces": true });
    let tokens = server.ask("/tokenize", &request)["tokens"].clone();
    assert_eq!(tokens[0]["piece"], "<bos>");
    assert_eq!(tokens.as_array().unwrap().last().unwrap()["piece"], "<turn|>");
    let back = server.ask("/detokenize", &json!({ "tokens": plain["tokens"] }));
    assert_eq!(back["content"], text);
    let refused = server.post("/detokenize", &json!({ "tokens": [1_000_000] }));
    assert_eq!((refused.status, &*refused.param()), (400, "tokens"));
    assert_snapshot!("apply_template", server.post("/apply-template", &question("hi")).shown());
}

#[test]
fn information() {
    let server = setup().start();
    for path in ["/v1/models", "/v1/models/gpt-4o", "/health", "/ready", "/props"] {
        let name = path.trim_start_matches('/').replace('/', "_");
        assert_snapshot!(name, server.get(path).shown());
    }
    server.chat(&question("greet"));
    let metrics = server.get("/metrics");
    for line in [
        "lapidary_requests_total{status=\"200\"} 6",
        "lapidary_completion_tokens_total",
        "lapidary_time_to_first_token_seconds_count 1",
        "lapidary_inter_token_latency_seconds_count",
        "lapidary_request_queue_time_seconds_bucket{le=\"+Inf\"} 1",
        "lapidary_engine_step_seconds_count",
        "lapidary_engine_step_rows_bucket{le=\"1.0\"}",
        "lapidary_engine_phase_seconds_total{phase=\"plan\"}",
        "lapidary_engine_phase_seconds_total{phase=\"deliver\"}",
        "lapidary_requests_running 0",
        "lapidary_kv_bytes{layers=\"global\"} 4096",
        "# EOF",
    ] {
        assert!(metrics.body.contains(line), "{line} is not in\n{}", metrics.body);
    }
    assert_snapshot!("no_route", server.get("/nowhere").shown());
    assert_snapshot!("wrong_method", server.get("/v1/completions").shown());
    let page = server.get("/");
    assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
}

#[test]
fn a_clients_own_request_id_comes_back() {
    let server = setup().start();
    let named = server.send("GET", "/health", &[("x-request-id", "abc-1")], "");
    assert_eq!(named.header("x-request-id"), Some("abc-1"));
    let odd = server.send("GET", "/health", &[("x-request-id", "a b")], "");
    assert!(odd.header("x-request-id").is_some_and(|id| id.starts_with("req-")));
}
