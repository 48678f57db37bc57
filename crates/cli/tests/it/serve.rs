//! `lapidary serve`, as a person types it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

/// A server on a free port, killed when dropped.
pub(crate) struct Server {
    process: Child,
    log: BufReader<ChildStderr>,
    address: String,
    /// What it said before it was ready.
    pub(crate) said: String,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lapidary"));
        command.args(["serve", "--port", "0"]).args(arguments).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the binary starts");
        let mut log = BufReader::new(process.stderr.take().expect("standard error is piped"));
        let mut said = String::new();
        let address = loop {
            let begin = said.len();
            assert!(log.read_line(&mut said).expect("the log is text") > 0, "it ended: {said}");
            if let Some((_, rest)) = said[begin..].split_once("http://") {
                break rest.split(' ').next().expect("a word").to_owned();
            }
        };
        Self { process, log, address, said }
    }

    pub(crate) fn ask(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        let request = format!("{head} HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in text");
        answer.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const QUESTION: &str = r#"{"messages":[{"role":"user","content":"What is the capital of Mongolia?"}],
    "temperature":0}"#;

#[test]
fn it_answers_and_ends_when_told_to() {
    let arguments = ["--alias", "gpt-4o", "--slots", "2", "--ctx", "512", "--log", "json"];
    let mut server = Server::start(&arguments);
    let answer: Value =
        serde_json::from_str(&server.ask("POST /v1/chat/completions", QUESTION)).expect("JSON");
    let said = &answer["choices"][0]["message"]["content"];
    assert_eq!(said, "The capital of Mongolia is Ulaanbaatar.");
    let props: Value = serde_json::from_str(&server.ask("GET /props", "")).expect("JSON");
    assert_eq!(
        (&props["model"], &props["slots"], &props["context"]),
        (&"pebble".into(), &2.into(), &512.into())
    );
    assert!(props["kv_bytes"]["sliding"].as_u64() > Some(0), "{props}");
    assert!(server.ask("GET /", "").starts_with("<!doctype html>"));
    let ended = Command::new("kill").arg(server.process.id().to_string()).status();
    assert!(ended.is_ok_and(|status| status.success()), "SIGTERM can be sent");
    assert_eq!(server.process.wait().expect("it ends").code(), Some(0));
    let mut log = String::new();
    server.log.read_to_string(&mut log).expect("the log is text");
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let first = &lines[0]["fields"];
    assert_eq!((&first["path"], &first["status"]), (&"/v1/chat/completions".into(), &200.into()));
    assert!(!log.contains("Mongolia"), "the log holds no prompts: {log}");
}

#[test]
fn it_warns_when_everybody_can_use_it() {
    assert!(!Server::start(&["--ctx", "64"]).said.contains("warning"));
    let open = Server::start(&["--ctx", "64", "--host", "0.0.0.0"]);
    assert!(open.said.contains("warning: everybody who can reach this machine"), "{}", open.said);
}

#[test]
fn what_cannot_be_served_is_refused_at_once() {
    for (arguments, status, said) in [
        (&["--api-key-file", "no/such/file"][..], 1, "no/such/file"),
        (&["--tls-cert", "x"], 2, "--tls-key"),
        (&["--host", "nowhere"], 2, "invalid"),
        (&["--slots", "0"], 2, "--slots"),
        (&["--ctx", "1"], 2, "--ctx 1 is out of range"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lapidary"));
        let out = command.arg("serve").args(arguments).output().expect("the binary starts");
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}
