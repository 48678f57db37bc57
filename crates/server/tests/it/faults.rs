//! Too much, too long, too late, and things that break.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lapidary_engine::Limits;
use lapidary_testkit::PANIC;
use serde_json::{Value, json};

use crate::support::{Server, Setup, events, question, wait_until, with};

const CHAT: &str = "/v1/chat/completions";

/// A model that takes its time over an answer without end.
fn slow(slots: usize, waiting: usize) -> Setup {
    let long = "on and ".repeat(300);
    let setup = Setup::new(&[("forever", &long), ("short", "Yes."), ("fatal", PANIC)]);
    let limits = Limits { slots, waiting, ..setup.limits };
    Setup { pace: Duration::from_millis(5), limits, ..setup }
}

fn streamed(text: &str) -> Value {
    with(question(text), json!({ "stream": true }))
}

/// Begins a streamed answer, and returns once its first words have come.
fn begin(server: &Server, text: &str) -> BufReader<TcpStream> {
    let stream = server.open("POST", CHAT, &[], &streamed(text).to_string());
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("\"content\":\"on") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended");
    }
    reader
}

#[test]
fn a_full_queue_refuses_with_the_time_to_try_again() {
    let server = slow(1, 1).start();
    let running = begin(&server, "forever");
    let waiting = server.open("POST", CHAT, &[], &streamed("forever").to_string());
    wait_until("one waits", || server.engine.stats().work.waiting == 1);
    for (path, request) in [
        (CHAT, question("short")),
        (CHAT, streamed("short")),
        ("/v1/completions", json!({ "prompt": "short" })),
        ("/v1/responses", json!({ "input": "short" })),
        ("/v1/messages", with(question("short"), json!({ "max_tokens": 5 }))),
        ("/v1/embeddings", json!({ "input": "short" })),
    ] {
        let refused = server.post(path, &request);
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{path}");
        assert!(refused.body.contains("1 requests are running and 1 waiting"), "{}", refused.body);
    }
    drop((running, waiting));
    wait_until("both are gone", || server.engine.stats().work.finished == 2);
    assert_eq!(server.chat(&question("short"))["content"], "Yes.");
}

#[test]
fn a_prompt_that_is_too_long_is_refused_with_both_counts() {
    let mut setup = slow(1, 1);
    setup.limits.context = 64;
    let server = setup.start();
    let long = "word ".repeat(500);
    for (path, request) in [
        (CHAT, question(&long)),
        (CHAT, streamed(&long)),
        ("/v1/completions", json!({ "prompt": long })),
        ("/v1/responses", json!({ "input": long })),
        ("/v1/messages", with(question(&long), json!({ "max_tokens": 5 }))),
        ("/v1/embeddings", json!({ "input": long })),
    ] {
        let refused = server.post(path, &request);
        assert_eq!(refused.status, 400, "{path}");
        let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        let numbers: Vec<usize> = message
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect();
        assert!(numbers[0] > 500 && numbers[1] == 64, "{message}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let server = slow(1, 1).start();
    let post = |body: &str| server.send("POST", CHAT, &[], body);
    assert_eq!(post("{").code(), "invalid_json");
    assert_eq!(post("[]").code(), "invalid_json");
    assert_eq!(post("{}").param(), "messages");
    let large = format!("{{\"x\": \"{}\"}}", "a".repeat(2 << 20));
    let refused = post(&large);
    assert_eq!((refused.status, &*refused.code()), (413, "body_too_large"));
    for (field, value) in [
        ("temperature", json!("hot")),
        ("temperature", json!(-1)),
        ("top_p", json!(1.5)),
        ("top_k", json!(-1)),
        ("max_tokens", json!("many")),
        ("seed", json!(1.5)),
        ("stop", json!([""])),
        ("stop", json!([1])),
        ("stop", json!(vec!["x"; 17])),
        ("stream", json!("yes")),
        ("logit_bias", json!({ "x": 1 })),
        ("logit_bias", json!({ "1": 101 })),
        ("logit_bias", json!({ "99999999": 1 })),
        ("top_logprobs", json!(3)),
        ("tool_choice", json!("maybe")),
        ("tool_choice", json!("required")),
        ("reasoning_effort", json!("some")),
        ("audio", json!({})),
        ("modalities", json!(["audio"])),
        ("functions", json!([])),
        ("function_call", json!("auto")),
        ("web_search_options", json!({})),
        ("n", json!(0)),
        ("tools[0]", json!(null)),
        ("messages[0].role", json!(null)),
    ] {
        let mut request = question("short");
        match field {
            "tools[0]" => request["tools"] = json!([{ "type": "web_search" }]),
            "messages[0].role" => request["messages"] = json!([{ "role": "pope" }]),
            _ => request[field] = value,
        }
        let refused = server.post(CHAT, &request);
        assert_eq!((refused.status, &*refused.param()), (400, field), "{}", refused.body);
    }
    let unknown = server.post(CHAT, &with(question("short"), json!({ "model": "gpt-9" })));
    assert_eq!((unknown.status, &*unknown.code()), (404, "model_not_found"));
}

#[test]
fn fields_without_effect_are_accepted_and_unknown_ones_refused_only_if_strict() {
    for strict in [false, true] {
        let server = Setup { strict, ..slow(1, 1) }.start();
        let idle = json!({
            "user": "me", "metadata": { "a": "b" }, "store": false, "service_tier": "auto",
            "cache_prompt": true, "prompt_cache_key": "x", "model": "gpt-4o",
        });
        assert_eq!(server.chat(&with(question("short"), idle))["content"], "Yes.");
        let answer = server.post(CHAT, &with(question("short"), json!({ "tempurature": 1 })));
        if strict {
            assert_eq!((answer.status, &*answer.param()), (400, "tempurature"));
        } else {
            assert_eq!(answer.status, 200);
        }
    }
}

#[test]
fn a_client_that_vanishes_cancels_its_request() {
    let server = slow(1, 4).start();
    drop(begin(&server, "forever"));
    wait_until("a stream is cancelled", || server.engine.stats().work.finished == 1);
    let whole = server.open("POST", CHAT, &[], &question("forever").to_string());
    wait_until("it runs", || server.engine.stats().work.running == 1);
    let waiting = server.open("POST", CHAT, &[], &question("forever").to_string());
    wait_until("it waits", || server.engine.stats().work.waiting == 1);
    drop(waiting);
    wait_until("one that waits is cancelled", || server.engine.stats().work.waiting == 0);
    drop(whole);
    wait_until("a whole answer is cancelled", || server.engine.stats().work.running == 0);
    assert!(server.engine.stats().work.tokens < 600, "nothing ran to its end");
}

#[test]
fn a_quiet_stream_shows_signs_of_life() {
    let setup = slow(1, 4);
    let server = Setup { heartbeat: Duration::from_millis(20), ..setup }.start();
    let running = begin(&server, "forever");
    let mut waiting = server.open("POST", CHAT, &[], &streamed("short").to_string());
    let mut seen = String::new();
    let mut bytes = [0; 256];
    while seen.matches(": waiting\n\n").count() < 3 {
        let count = waiting.read(&mut bytes).unwrap();
        assert!(count > 0, "the stream ended: {seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    drop(running);
    waiting.read_to_string(&mut seen).unwrap();
    assert!(seen.ends_with("data: [DONE]\n\n"), "{seen}");
    assert!(seen.contains("\"content\":\"Y"), "{seen}");
}

#[test]
fn a_client_that_does_not_finish_its_head_is_let_go() {
    let server = Setup { head_timeout: Duration::from_millis(80), ..slow(1, 1) }.start();
    for head in ["", "GET /health HTTP/1.1\r\nhost: local"] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut rest = Vec::new();
        // Closed or reset, but not left open.
        let _ = stream.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    }
    // An answer may take longer than a head.
    let long = with(question("forever"), json!({ "max_tokens": 60 }));
    assert_eq!(server.post(CHAT, &long).status, 200);
}

#[test]
fn connections_beyond_the_limit_wait_for_one_to_end() {
    let server = Setup { connections: 1, ..slow(1, 1) }.start();
    let first = TcpStream::connect(server.address).unwrap();
    // Served once the first has its seat and gives it up again.
    let mut second = server.open("GET", "/health", &[], "");
    second.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut byte = [0];
    assert!(second.read(&mut byte).is_err(), "there is no seat yet");
    drop(first);
    second.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = String::new();
    second.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
}

#[test]
fn a_server_that_stops_finishes_what_it_has_begun() {
    let setup = Setup { grace: Duration::from_secs(20), ..slow(1, 4) };
    let mut server = setup.start();
    let mut running = begin(&server, "forever");
    server.ask_to_stop();
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    server.wait_for_end();
    assert!(TcpStream::connect(server.address).is_err(), "nobody listens");
}

#[test]
fn a_server_out_of_patience_cuts_what_runs() {
    let mut server = slow(1, 4).start();
    let mut running = begin(&server, "forever");
    server.ask_to_stop();
    server.wait_for_end();
    let mut rest = String::new();
    // Cut in the middle: an end without an end, or a broken connection.
    let _ = running.read_to_string(&mut rest);
    assert!(!rest.contains("[DONE]"), "{rest}");
    wait_until("the request is cancelled", || server.engine.stats().work.running == 0);
}

#[test]
fn an_engine_that_panics_fails_its_requests_and_the_health_check() {
    let server = slow(2, 4).start();
    let mut running = begin(&server, "forever");
    let fatal = server.post(CHAT, &question("fatal"));
    assert_eq!((fatal.status, &*fatal.code()), (500, "engine_failed"));
    assert!(!fatal.body.contains("panic"), "the reason is for the log: {}", fatal.body);
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert_eq!(events(&rest).last().unwrap()["error"]["code"], "engine_failed", "{rest}");
    for path in ["/health", "/ready"] {
        let health = server.get(path);
        assert_eq!((health.status, &*health.code()), (503, "engine_down"));
    }
    let later = server.post(CHAT, &question("short"));
    assert_eq!((later.status, &*later.code()), (503, "engine_down"));
    let theirs = server.post("/v1/messages", &with(question("short"), json!({ "max_tokens": 1 })));
    assert_eq!(theirs.json()["error"]["type"], "overloaded_error");
    assert_eq!(server.get("/metrics").status, 200);
}
