//! What users of other servers report: one test for each report, named after its symptom, with text
//! as the model and the real templates write it.

use serde_json::{Value, json};

use crate::support::{Setup, events, question, with};

/// Replies to the questions 0, 1, 2, …
fn replies(list: &[&str]) -> Setup {
    let numbered: Vec<_> =
        list.iter().enumerate().map(|(i, reply)| (format!("question {i}."), *reply)).collect();
    let pairs: Vec<_> = numbered.iter().map(|(needle, reply)| (needle.as_str(), *reply)).collect();
    Setup::new(&pairs)
}

/// Asks every question, whole and streamed, under both templates. `check` sees the content, the
/// reasoning, the calls as names with arguments, and the finish reason.
fn each(
    list: &[&str],
    members: &Value,
    check: impl Fn(usize, &str, &str, &[(String, Value)], &str),
) {
    for server in replies(list).start_both() {
        for i in 0..list.len() {
            let request = with(question(&format!("question {i}.")), members.clone());
            let whole = server.ask("/v1/chat/completions", &request)["choices"][0].clone();
            let message = &whole["message"];
            check(
                i,
                message["content"].as_str().unwrap_or_default(),
                message["reasoning_content"].as_str().unwrap_or_default(),
                &calls(&message["tool_calls"]),
                whole["finish_reason"].as_str().unwrap(),
            );
            let streamed = server.chat_streamed(&request);
            check(
                i,
                streamed["content"].as_str().unwrap(),
                streamed["reasoning"].as_str().unwrap(),
                &calls(&streamed["calls"]),
                streamed["finish"].as_str().unwrap(),
            );
        }
    }
}

fn calls(list: &Value) -> Vec<(String, Value)> {
    let list = list.as_array().into_iter().flatten();
    list.map(|call| {
        let function = &call["function"];
        let arguments = serde_json::from_str(function["arguments"].as_str().unwrap());
        (function["name"].as_str().unwrap().to_owned(), arguments.expect("arguments are JSON"))
    })
    .collect()
}

fn weather_tool() -> Value {
    json!([{ "type": "function", "function": { "name": "get_weather", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": { "type": "string" }, "days": { "type": "integer" } } } } }])
}

/// 1.
#[test]
fn a_literal_tool_call_in_prose_does_not_truncate_the_answer() {
    let list = [
        "Write <|tool_call> to begin a call.",
        "<|tool_call> is a token.",
        "The marks are <|tool_call> and <tool_call|>, in that order.",
        "Say <|tool_call>call me maybe<tool_call|> and so on.",
        "First <|tool_call>f{}<tool_call|>, then text.",
        "It ends in <|tool_call>",
    ];
    each(&list, &json!({}), |i, content, _, calls, finish| {
        assert_eq!((content, calls.len(), finish), (list[i], 0, "stop"));
    });
}

/// 2.
#[test]
fn a_malformed_reply_is_text_and_never_an_error_after_generation() {
    let list = [
        "<|tool_call>call:get_weather{city:<tool_call|>",
        "<|tool_call>call:get_weather{city:<|\"|>La Paz",
        "<|tool_call>call:get_weather city<tool_call|> or so",
        "<|tool_call>call:{}<tool_call|>",
        "<|tool_call>call:f{a:1,}<tool_call|>",
        "<|channel>analysis\nwhat now<channel|>",
        "<tool_call|><tool_response|>",
    ];
    each(&list, &json!({ "tools": weather_tool() }), |i, content, _, calls, finish| {
        assert_eq!((content, calls.len(), finish), (list[i], 0, "stop"));
    });
}

/// 3.
#[test]
fn a_tool_call_is_not_content_and_an_answer_follows_its_result() {
    let call = "<|tool_call>call:get_weather{city:<|\"|>La Paz<|\"|>}<tool_call|><|tool_response>";
    let replies = [("response:get_weather", "It is 21 degrees."), ("weather", call)];
    let results = [
        json!("21"),
        json!("{\"t\": 21}"),
        json!({ "t": 21 }),
        json!([{ "type": "text", "text": "21" }]),
        json!(""),
    ];
    for server in Setup::new(&replies).start_both() {
        for result in &results {
            let mut request = with(question("weather?"), json!({ "tools": weather_tool() }));
            let asked = server.chat(&request);
            assert_eq!(asked["content"], Value::Null);
            let calls = &asked["tool_calls"];
            assert_eq!(calls[0]["function"]["arguments"], "{\"city\":\"La Paz\"}");
            let messages = request["messages"].as_array_mut().unwrap();
            messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
            let id = &calls[0]["id"];
            messages.push(json!({ "role": "tool", "tool_call_id": id, "content": result }));
            assert_eq!(server.chat(&request)["content"], "It is 21 degrees.", "{result}");
        }
    }
}

/// 4.
#[test]
fn several_thoughts_are_merged_and_doubled_calls_stay() {
    let list = [
        "<|channel>thought\na<channel|><|channel>thought\nb<channel|>c",
        "<|channel>thought\na\n<channel|>c<|channel>thought\nb<channel|>",
        "<|channel>thought\na<channel|><channel|><|channel>thought\nb<channel|>c",
        "<|channel>thought\na<|channel>thought\nb<channel|>c<channel|>",
        "<|channel>thought\n<channel|><|channel>thought\na\nb<channel|>c",
    ];
    each(&list, &json!({}), |i, content, reasoning, _, _| {
        assert_eq!((content, reasoning), ("c", "a\nb"), "{}", list[i]);
    });
    let call = "<|tool_call>call:f{a:1}<tool_call|>";
    let twice = [call.repeat(2), format!("{call}{}", call.replace(":1", ":2"))];
    let list: Vec<_> = twice.iter().map(String::as_str).collect();
    each(&list, &json!({}), |i, _, _, calls, finish| {
        let second = [json!({ "a": 1 }), json!({ "a": 2 })][i].clone();
        let f = || "f".to_owned();
        assert_eq!((calls, finish), (&[(f(), json!({ "a": 1 })), (f(), second)][..], "tool_calls"));
    });
}

/// 5 and 7.
#[test]
fn nested_and_odd_arguments_become_valid_json() {
    let quote = "<|\"|>";
    let list = [
        (
            "{a:{b:{c:[1,[2,{d:null}]]}}}".to_owned(),
            json!({"a": {"b": {"c": [1, [2, {"d": null}]]}}}),
        ),
        (
            "{user.name:1,@type:2,x-y:3,$ref:4}".to_owned(),
            json!({"user.name": 1, "@type": 2, "x-y": 3, "$ref": 4}),
        ),
        (
            format!("{{q:{quote}say \"hi\" \\ {{}}[],:<| |>{quote}}}"),
            json!({"q": "say \"hi\" \\ {}[],:<| |>"}),
        ),
        (format!("{{code:{quote}if a:\n\tb\n{quote}}}"), json!({"code": "if a:\n\tb\n"})),
        (format!("{{{quote}odd key{quote}:{quote}é🙂{quote}}}"), json!({"odd key": "é🙂"})),
        (
            "{a:-2.5e3,b:true,c:false,d:[],e:{}}".to_owned(),
            json!({"a": -2.5e3, "b": true, "c": false, "d": [], "e": {}}),
        ),
        (
            format!("{{a:{quote}{quote},b:[{quote}x{quote},{quote}<tool_call|>{quote}]}}"),
            json!({"a": "", "b": ["x", "<tool_call|>"]}),
        ),
    ];
    let texts: Vec<_> =
        list.iter().map(|(text, _)| format!("<|tool_call>call:f{text}<tool_call|>")).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    each(&texts, &json!({}), |i, content, _, calls, _| {
        assert_eq!((content, calls), ("", &[("f".to_owned(), list[i].1.clone())][..]));
    });
}

/// 9.
#[test]
fn every_call_delta_carries_its_id_type_and_name() {
    let call = "<|tool_call>call:f{a:1}<tool_call|>";
    let list = [
        call.to_owned(),
        call.repeat(2),
        call.repeat(3),
        format!("Let me see.{call}"),
        format!("<|channel>thought\nhm<channel|>{call}{call}"),
    ];
    let texts: Vec<_> = list.iter().map(String::as_str).collect();
    let server = replies(&texts).start();
    for (i, text) in texts.iter().enumerate() {
        let streamed = server.chat_streamed(&question(&format!("question {i}.")));
        let calls = streamed["calls"].as_array().unwrap();
        for (place, call) in calls.iter().enumerate() {
            assert_eq!(call["index"], place);
            assert_eq!(
                (&call["type"], &call["function"]["name"]),
                (&json!("function"), &json!("f"))
            );
        }
        let mut ids: Vec<_> = calls.iter().map(|call| call["id"].as_str().unwrap()).collect();
        ids.dedup();
        assert_eq!(ids.len(), text.matches("call:").count(), "ids differ");
    }
}

/// 10.
#[test]
fn reasoning_does_not_leak_into_content_after_a_tool_result() {
    let ends = [
        ("", "<|channel>thought\nok<channel|>done"),
        ("", "<|channel>thought\nok\n<channel|>done"),
        ("{{ '<|channel>thought\n' }}", "ok<channel|>done"),
        ("{{ '<|channel>thought\n' }}", "ok\n<channel|>done"),
        ("<|channel>thought", "\nok<channel|>done"),
        ("<|channel>thought\no", "k<channel|>done"),
        ("<|channel>thought\n<channel|>", "<|channel>thought\nok<channel|>done"),
    ];
    for (template_end, reply) in ends {
        let setup = Setup::new(&[("response:get_weather", reply)]);
        for server in (Setup { template_end, ..setup }).start_both() {
            let call =
                json!({ "id": "1", "function": { "name": "get_weather", "arguments": "{}" } });
            let request = json!({ "tools": weather_tool(), "messages": [
                { "role": "user", "content": "weather?" },
                { "role": "assistant", "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "1", "content": "21" },
            ] });
            let message = server.chat(&request);
            assert_eq!(message["content"], "done", "{template_end:?} {reply:?}");
            let thought = message["reasoning_content"].as_str().unwrap();
            assert!("ok".ends_with(thought), "{thought}");
        }
    }
}

fn schema(schema: Value) -> Value {
    json!({ "response_format": {
        "type": "json_schema", "json_schema": { "name": "answer", "schema": schema } } })
}

/// 11.
#[test]
fn text_before_a_thought_escapes_neither_parser_nor_schema() {
    let list = [
        "Sure! <|channel>thought\nhm<channel|>\"red\"",
        "\"<|channel>thought\nhm<channel|>\"red\"",
        " <|channel>thought\nhm<channel|>\"red\"",
        "thought\nhm<channel|>\"red\"",
        "```json\n<|channel>thought\nhm<channel|>\"red\"",
    ];
    let free = ["Sure! ", "\"", " ", "thought\nhm", "```json\n"];
    each(&list, &json!({}), |i, content, _, _, _| {
        assert_eq!(content, format!("{}\"red\"", free[i]), "without a schema it is text");
    });
    let thinking = json!({ "reasoning_effort": "high", "thinking_budget": 3 });
    let members = with(schema(json!({ "enum": ["red", "blue"] })), thinking);
    each(&list, &members, |_, content, _, _, _| {
        assert!(["\"red\"", "\"blue\""].contains(&content.trim()), "{content}");
    });
}

/// 12.
#[test]
fn neither_the_word_thought_nor_empty_channels_show_up_in_later_turns() {
    let list = [
        "thought\n<channel|>yes",
        "<|channel>thought\n<channel|>yes",
        "<|channel><channel|>yes",
        "<channel|>yes",
        "yes<channel|>",
    ];
    each(&list, &json!({}), |i, content, reasoning, _, _| {
        assert_eq!((content, reasoning), ("yes", ""), "{}", list[i]);
    });
    let said = [
        json!({ "role": "assistant", "content": "yes", "reasoning_content": "secret" }),
        json!({ "role": "assistant", "content": "yes", "reasoning": "secret" }),
        json!({ "role": "assistant", "content": "<|channel>thought\nsecret<channel|>yes" }),
        json!({ "role": "assistant", "content": "<|channel>thought\n<channel|>yes" }),
        json!({ "role": "assistant", "content": "yes<|channel>thought\nsecret" }),
    ];
    for server in replies(&[]).start_both() {
        for said in &said {
            let request = json!({ "messages": [
                { "role": "user", "content": "a" }, said, { "role": "user", "content": "b" }] });
            let prompt = server.ask("/apply-template", &request)["prompt"].clone();
            let prompt = prompt.as_str().unwrap();
            let history = prompt.rsplit_once("<|turn>model").unwrap().0;
            assert!(!history.contains("thought") && !history.contains("secret"), "{prompt}");
            assert!(history.contains("<|turn>model\nyes<turn|>"), "{prompt}");
        }
    }
}

/// 14.
#[test]
fn null_arguments_and_neighbouring_turns_render_as_one_would_write_them() {
    let call = |arguments: Value| {
        json!({ "messages": [
        { "role": "user", "content": "a" },
        { "role": "assistant", "content": "", "tool_calls": [
            { "id": "1", "type": "function", "function": { "name": "f", "arguments": arguments } }] },
        { "role": "tool", "tool_call_id": "1", "content": "ok" }] })
    };
    for server in replies(&[]).start_both() {
        let prompt = |request: &Value| server.ask("/apply-template", request)["prompt"].clone();
        for none in [json!(null), json!(""), json!("null"), json!("{}"), json!({ "a": null })] {
            assert_eq!(prompt(&call(none)), prompt(&call(json!({}))));
        }
        let ab = prompt(&call(json!({ "a": 1, "b": "x" })));
        assert_eq!(prompt(&call(json!("{\"b\": \"x\", \"a\": 1}"))), ab);
        assert!(ab.as_str().unwrap().contains("call:f{a:1,b:<|\"|>x<|\"|>}"), "{ab}");
        let turns = |said: Value| {
            json!({ "messages": [{ "role": "user", "content": "a" }, said[0],
            said[1], { "role": "user", "content": "b" }] })
        };
        let one =
            json!([{ "role": "assistant", "content": "c\nd" }, { "role": "user", "content": "x" }]);
        let two = json!([{ "role": "assistant", "content": "c" }, { "role": "assistant", "content": "d" }]);
        let with_one = prompt(&turns(one)).as_str().unwrap().replace("<|turn>user\nx<turn|>\n", "");
        assert_eq!(prompt(&turns(two)), with_one);
    }
}

/// 17.
#[test]
fn content_is_there_even_if_the_model_only_thought_and_thinking_can_be_chosen() {
    let thought = "<|channel>thought\nhm and hm and hm";
    let server = replies(&[thought]).start();
    for max_tokens in [1, 2, 4, 6, 50] {
        let request = with(question("question 0."), json!({ "max_tokens": max_tokens }));
        let message = server.chat(&request);
        assert_eq!(message["content"], "");
        assert!(thought.contains(message["reasoning_content"].as_str().unwrap_or_default()));
    }
    for (members, thinks) in [
        (json!({}), false),
        (json!({ "reasoning_effort": "high" }), true),
        (json!({ "reasoning_effort": "none" }), false),
        (json!({ "reasoning_effort": "minimal" }), false),
        (json!({ "chat_template_kwargs": { "enable_thinking": true } }), true),
        (json!({ "chat_template_kwargs": { "enable_thinking": false } }), false),
    ] {
        let prompt = server.ask("/apply-template", &with(question("q"), members.clone()));
        assert_eq!(prompt["prompt"].as_str().unwrap().contains("<|think|>"), thinks, "{members}");
    }
    let both = json!({
        "reasoning_effort": "high", "chat_template_kwargs": { "enable_thinking": false } });
    let refused = server.post("/v1/chat/completions", &with(question("q"), both));
    assert_eq!((refused.status, &*refused.param()), (400, "reasoning_effort"));
}

/// 18.
#[test]
fn a_schema_is_enforced_without_thinking() {
    let list =
        ["I would say red.", "```json\n\"red\"\n```", "red", "{\"colour\": \"red\"}", "\"green\""];
    for off in [
        json!({}),
        json!({ "reasoning_effort": "none" }),
        json!({ "chat_template_kwargs": { "enable_thinking": false } }),
    ] {
        let members = with(schema(json!({ "enum": ["red", "blue"] })), off);
        each(&list, &members, |_, content, _, _, finish| {
            assert!(["\"red\"", "\"blue\""].contains(&content), "{content}");
            assert_eq!(finish, "stop");
        });
    }
}

/// 19 and 24.
#[test]
fn a_schema_begins_after_the_thought_and_ends_the_answer() {
    let thought = "<|channel>thought\nPerhaps ```json\n{}\n```?<channel|>";
    let list = [
        format!("{thought}{{\"a\":1}}"),
        format!("{thought}{{\"a\":1}}{{\"a\":1}}"),
        format!("{thought}{{\"a\":1}}\n```"),
        format!("{thought}{{\"a\":1}} Done."),
        format!("{thought}{{\"a\":1}}<|channel>thought\nagain<channel|>"),
    ];
    let texts: Vec<_> = list.iter().map(String::as_str).collect();
    let wanted = json!({ "type": "object", "properties": { "a": { "const": 1 } },
        "required": ["a"], "additionalProperties": false });
    let members = with(schema(wanted), json!({ "reasoning_effort": "high" }));
    each(&texts, &members, |_, content, reasoning, _, finish| {
        assert_eq!((content, finish), ("{\"a\":1}", "stop"));
        assert_eq!(reasoning, "Perhaps ```json\n{}\n```?");
    });
}

/// 20.
#[test]
fn a_format_that_cannot_be_had_is_refused_and_not_ignored() {
    let server = replies(&["x"]).start();
    for format in [
        json!({ "type": "xml" }),
        json!({ "type": "json_schema" }),
        json!({ "type": "json_schema", "json_schema": { "name": "x" } }),
        json!("json"),
        json!({ "type": "json_schema", "json_schema": { "schema": { "type": "nonsense" } } }),
        json!({ "type": "json_schema", "json_schema": { "schema": false } }),
    ] {
        let request = with(question("question 0."), json!({ "response_format": format }));
        let answer = server.post("/v1/chat/completions", &request);
        assert_eq!(answer.status, 400, "{format}: {}", answer.body);
        assert!(answer.param().starts_with("response_format"), "{}", answer.body);
    }
}

/// 21.
#[test]
fn values_outside_a_schema_do_not_come_back() {
    let cases = [
        (json!({ "enum": ["a", "b"] }), "\"c\"", vec!["\"a\"", "\"b\""]),
        (json!({ "type": "integer", "minimum": 5, "maximum": 6 }), "7", vec!["5", "6"]),
        (json!({ "type": "string", "pattern": "^ab$" }), "\"ba\"", vec!["\"ab\""]),
        (json!({ "const": { "x": 1 } }), "{\"x\":2}", vec!["{\"x\":1}"]),
        (json!({ "type": "boolean" }), "\"yes\"", vec!["true", "false"]),
        (json!({ "type": "null" }), "0", vec!["null"]),
        (
            json!({ "type": "array", "items": { "const": 1 }, "minItems": 2, "maxItems": 2 }),
            "[1]",
            vec!["[1,1]"],
        ),
    ];
    for (wanted, reply, allowed) in cases {
        each(&[reply], &schema(wanted.clone()), |_, content, _, _, finish| {
            let compact: String = content.split_whitespace().collect();
            assert!(allowed.contains(&&*compact), "{content} for {wanted}");
            assert_eq!(finish, "stop");
        });
    }
}

/// 23.
#[test]
fn a_schema_goes_on_from_what_the_client_has_begun() {
    let wanted = json!({ "type": "object", "properties": { "a": { "enum": ["red", "rose"] } },
        "required": ["a"], "additionalProperties": false });
    let server = Setup::new(&[("colour", "d\"}")]).start();
    for begun in ["{", "{\"a\"", "{\"a\":", "{\"a\":\"re", "{ \"a\": \"red\""] {
        let request = json!({ "messages": [
            { "role": "user", "content": "colour" }, { "role": "assistant", "content": begun }] });
        let message = server.chat(&with(request, schema(wanted.clone())));
        let whole = format!("{begun}{}", message["content"].as_str().unwrap());
        let value: Value = serde_json::from_str(&whole).unwrap_or_else(|e| panic!("{e}: {whole}"));
        assert!([json!("red"), json!("rose")].contains(&value["a"]), "{whole}");
    }
    let request = json!({ "messages": [
        { "role": "user", "content": "colour" }, { "role": "assistant", "content": "[1" }] });
    let refused = server.post("/v1/chat/completions", &with(request, schema(wanted)));
    assert_eq!((refused.status, &*refused.param()), (400, "messages"));
}

/// 26.
#[test]
fn a_raw_completion_has_exactly_one_beginning_token() {
    let server = replies(&[]).start();
    let bos = server.ask("/tokenize", &json!({ "content": "<bos>" }))["tokens"][0].clone();
    let ids = server.ask("/tokenize", &json!({ "content": "Hi there" }))["tokens"].clone();
    let mut with_bos = ids.as_array().unwrap().clone();
    with_bos.insert(0, bos);
    for prompt in [
        json!("Hi there"),
        json!("<bos>Hi there"),
        json!("<bos><bos>Hi there"),
        json!(ids),
        json!(with_bos),
        json!(["Hi there"]),
    ] {
        let usage = server.ask("/v1/completions", &json!({ "prompt": prompt }))["usage"].clone();
        assert_eq!(usage["prompt_tokens"], with_bos.len(), "{prompt}");
    }
}

/// 39.
#[test]
fn a_picture_that_cannot_be_looked_at_is_refused_and_does_not_end_the_server() {
    let server = replies(&["x"]).start();
    for part in [
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } }),
        json!({ "type": "image_url", "image_url": { "url": "https://example.org/a.png" } }),
        json!({ "type": "image" }),
        json!({ "type": "input_audio", "input_audio": { "data": "AAAA", "format": "wav" } }),
        json!({ "type": "video_url", "video_url": { "url": "x" } }),
    ] {
        let request = json!({ "messages": [{ "role": "user", "content": [part] }] });
        let refused = server.post("/v1/chat/completions", &request);
        assert_eq!((refused.status, &*refused.code()), (400, "unsupported_content"));
    }
    assert_eq!(server.get("/health").status, 200);
}

/// 45.
#[test]
fn a_conversation_that_fills_the_context_ends_with_length() {
    let long = "on and ".repeat(400);
    let mut setup = Setup::new(&[("forever", &long), ("short", "Yes.")]);
    setup.limits.context = 64;
    for server in setup.start_both() {
        for members in [
            json!({}),
            json!({ "max_tokens": 1000 }),
            json!({ "stream": true }),
            json!({ "stop": "never" }),
            json!({ "logprobs": true }),
        ] {
            let request = with(question("forever"), members.clone());
            let answer = server.post("/v1/chat/completions", &request);
            assert_eq!(answer.status, 200, "{members}");
            assert!(answer.body.contains("\"finish_reason\":\"length\""), "{}", answer.body);
            assert_eq!(server.chat(&question("short"))["content"], "Yes.");
        }
    }
}

/// A report on mistral.rs.
#[test]
fn seed_and_stream_options_are_honoured() {
    let server = replies(&["Hello."]).start();
    let path = "/v1/chat/completions";
    for seed in [0, 1, 7, 1_000_000, i64::MAX] {
        let answer = server.ask(path, &with(question("question 0."), json!({ "seed": seed })));
        assert_eq!(answer["timings"]["seed"], seed);
    }
    for (options, has_usage) in [
        (json!({ "include_usage": true }), true),
        (json!({ "include_usage": false }), false),
        (json!({}), false),
        (json!(null), false),
    ] {
        let members = json!({ "stream": true, "stream_options": options });
        let answer = server.post(path, &with(question("question 0."), members));
        let chunks = events(&answer.body);
        assert_eq!(chunks.last().unwrap()["usage"].is_object(), has_usage, "{options}");
    }
    let whole = json!({ "stream_options": { "include_usage": true } });
    let refused = server.post(path, &with(question("question 0."), whole));
    assert_eq!((refused.status, &*refused.param()), (400, "stream_options"));
}

/// A report on AiDotNet.
#[test]
fn usage_and_log_probabilities_are_cut_at_a_stop_text() {
    let text = "One, two, three, four, five.";
    let server = replies(&[text]).start();
    for stop in ["three", ", th", " four", "five.", "One", "e, f"] {
        let members = json!({ "stop": stop, "logprobs": true, "temperature": 0 });
        let answer = server.ask("/v1/chat/completions", &with(question("question 0."), members));
        let choice = &answer["choices"][0];
        let shown = text.split(stop).next().unwrap();
        assert_eq!(choice["message"]["content"], shown);
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        let spelled: String = entries.iter().map(|e| e["token"].as_str().unwrap()).collect();
        assert!(spelled.starts_with(shown), "{spelled:?} for {shown:?}");
        let last = entries.last().map_or(0, |entry| entry["token"].as_str().unwrap().len());
        assert!(spelled.len() < shown.len() + last.max(1), "{spelled:?} goes on after {shown:?}");
        assert_eq!(answer["usage"]["completion_tokens"], entries.len());
    }
}

/// A report on llama-cpp-python.
#[test]
fn log_probabilities_include_the_last_token() {
    let server = replies(&["One, two, three, four, five."]).start();
    for max_tokens in [1, 2, 3, 5, 50] {
        let members = json!({ "logprobs": true, "top_logprobs": 2, "max_tokens": max_tokens });
        let request = with(question("question 0."), members);
        let answer = server.ask("/v1/chat/completions", &request);
        let choice = &answer["choices"][0];
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        let spelled: String = entries.iter().map(|e| e["token"].as_str().unwrap()).collect();
        assert_eq!(choice["message"]["content"], spelled);
        assert_eq!(answer["usage"]["completion_tokens"], entries.len());
        assert!(entries.iter().all(|e| e["top_logprobs"].as_array().unwrap().len() == 2));
    }
}
