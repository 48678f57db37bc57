//! A server over a scripted model, and a client that sees every byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lapidary_core::TokenId;
use lapidary_engine::{Engine, Limits};
use lapidary_server::{App, Defaults, Keys, Model, Settings, Tls, World, serve};
use lapidary_testkit::{Script, pebble_words, shared};
use lapidary_text::{ChatTemplate, Control, Tokenizer};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// How long a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How a test's server is set up.
#[derive(Clone)]
pub(crate) struct Setup {
    /// What the model answers: to prompts that contain the first text, the second.
    pub(crate) replies: Vec<(String, String)>,
    pub(crate) pace: Duration,
    /// The most guesses in a row.
    pub(crate) drafts: usize,
    pub(crate) limits: Limits,
    pub(crate) strict: bool,
    pub(crate) keys: Keys,
    pub(crate) max_body: usize,
    pub(crate) heartbeat: Duration,
    pub(crate) connections: usize,
    pub(crate) head_timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) tls: Option<Tls>,
    /// Google's own template instead of Pebble's.
    pub(crate) published: bool,
    /// What the template writes at its very end.
    pub(crate) template_end: &'static str,
}

impl Setup {
    pub(crate) fn new(replies: &[(&str, &str)]) -> Self {
        let own = |(needle, reply): &(&str, &str)| ((*needle).to_owned(), (*reply).to_owned());
        Self {
            replies: replies.iter().map(own).collect(),
            pace: Duration::ZERO,
            drafts: 0,
            limits: Limits { slots: 2, context: 2048, burst: 256, step: 256, waiting: 8 },
            strict: false,
            keys: Keys::default(),
            max_body: 1 << 20,
            heartbeat: Duration::from_secs(60),
            connections: 64,
            head_timeout: Duration::from_secs(60),
            grace: Duration::ZERO,
            tls: None,
            published: false,
            template_end: "",
        }
    }

    /// With Google's own template, if the reference material is here.
    pub(crate) fn published(self) -> Option<Self> {
        shared("fixtures/templates/gemma-4-31b-it.jinja")?;
        Some(Self { published: true, ..self })
    }

    pub(crate) fn start(self) -> Server {
        Server::start(self)
    }

    /// One server with Pebble's template and, where that is at hand, one with Google's.
    pub(crate) fn start_both(self) -> Vec<Server> {
        let published = self.clone().published();
        [Some(self), published].into_iter().flatten().map(Self::start).collect()
    }
}

/// A running server; it stops when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    stop: Option<oneshot::Sender<()>>,
    stopped: std::sync::mpsc::Receiver<()>,
}

fn model(tokenizer: Tokenizer, template: &str, context: u32) -> Model {
    let special = |text| tokenizer.specials().token(text);
    let ends = ["<eos>", "<turn|>", "<|tool_response>"];
    let end: Vec<TokenId> = ends.into_iter().filter_map(special).collect();
    let template = ChatTemplate::new(template, tokenizer.specials()).unwrap();
    Model {
        name: "pebble".to_owned(),
        aliases: vec!["gpt-4o".to_owned()],
        template: Some(template),
        end,
        suppress: Vec::new(),
        images: None,
        defaults: Defaults { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, thinking: false },
        context,
        tokenizer,
    }
}

impl Server {
    fn start(setup: Setup) -> Self {
        let (tokenizer, own) = pebble_words();
        let template = match shared("fixtures/templates/gemma-4-31b-it.jinja") {
            Some(path) if setup.published => std::fs::read_to_string(path).unwrap(),
            _ => own,
        } + setup.template_end;
        let model = model(tokenizer, &template, setup.limits.context);
        let words = Arc::new(pebble_words().0);
        let end = words.specials().token("<turn|>").unwrap();
        let Setup { replies, pace, drafts, .. } = setup;
        let script = Script { tokenizer: words, end, replies, pace, drafts };
        let engine = script.start(setup.limits);
        let settings = Settings {
            strict: setup.strict,
            keys: setup.keys,
            max_body: setup.max_body,
            heartbeat: setup.heartbeat,
            connections: setup.connections,
            head_timeout: setup.head_timeout,
            log_prompts: false,
            slots: setup.limits.slots,
            kv_bytes: (4096, 1024),
            drafts,
            props: json!({ "kv": "f32" }),
        };
        let count = AtomicU64::new(0);
        let world = World {
            unix: Box::new(|| 1_700_000_000),
            elapsed: Box::new(|| Duration::ZERO),
            random: Box::new(move || count.fetch_add(1, Ordering::Relaxed)),
        };
        let app = App::new(engine.clone(), model, settings, world);
        let (tell, told) = std::sync::mpsc::channel();
        let (done, stopped) = std::sync::mpsc::channel();
        let (stop, asked) = oneshot::channel::<()>();
        let (tls, grace) = (setup.tls, setup.grace);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(socket.local_addr().unwrap()).unwrap();
                let stop = async {
                    let _ = asked.await;
                };
                serve(app, socket, tls, stop, grace).await.unwrap();
            });
            runtime.shutdown_timeout(Duration::ZERO);
            let _ = done.send(());
        });
        Self { address: told.recv().unwrap(), engine, stop: Some(stop), stopped }
    }

    /// Asks it to stop.
    pub(crate) fn ask_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has.
    pub(crate) fn wait_for_end(&self) {
        self.stopped.recv_timeout(PATIENCE).expect("the server ends");
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], &body.to_string())
    }

    /// The JSON of an answer that must succeed.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.body);
        answer.json()
    }

    /// The only choice's message of a chat request.
    pub(crate) fn chat(&self, body: &Value) -> Value {
        self.ask("/v1/chat/completions", body)["choices"][0]["message"].clone()
    }

    /// The same, put together from a stream.
    pub(crate) fn chat_streamed(&self, body: &Value) -> Value {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let answer = self.post("/v1/chat/completions", &body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.body);
        gathered(&answer.body)
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut stream = self.open(method, path, headers, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Answer::parse(&String::from_utf8(bytes).unwrap())
    }

    /// Sends a request and leaves the answer to be read. HTTP 1.0, so that the answer is neither
    /// cut into chunks nor kept open.
    pub(crate) fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let mut head =
            format!("{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-length: {length}\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }
}

/// What came back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {text:?}"));
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| line.split_once(": ").map(|(n, v)| (n.to_owned(), v.len()));
        let found = self.head.lines().find(|l| line(l).is_some_and(|(n, _)| n == name))?;
        found.split_once(": ").map(|(_, value)| value)
    }

    /// Status, kind and body, as a snapshot shows them.
    pub(crate) fn shown(&self) -> String {
        let kind = self.header("content-type").unwrap_or("none");
        format!("{} {kind}\n\n{}", self.status, self.body)
    }

    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn param(&self) -> String {
        self.json()["error"]["param"].as_str().unwrap_or_default().to_owned()
    }
}

/// The data of every event of a stream, but the last line that says it is over.
pub(crate) fn events(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The message that a chat stream's chunks come to.
pub(crate) fn gathered(body: &str) -> Value {
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    let mut finish = Value::Null;
    for chunk in events(body) {
        let Some(choice) = chunk["choices"].get(0) else { continue };
        let delta = &choice["delta"];
        content.push_str(delta["content"].as_str().unwrap_or_default());
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            for key in ["index", "id", "type"] {
                assert!(!call[key].is_null(), "a delta lacks {key}: {call}");
            }
            calls.push(call.clone());
        }
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    json!({ "content": content, "reasoning": reasoning, "calls": calls, "finish": finish })
}

pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A chat request of one question.
pub(crate) fn question(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }] })
}

/// A request with more members.
pub(crate) fn with(mut request: Value, members: Value) -> Value {
    if let (Some(request), Value::Object(members)) = (request.as_object_mut(), members) {
        request.extend(members);
    }
    request
}

/// How many tokens Pebble spells a text with.
pub(crate) fn spelled(text: &str) -> usize {
    pebble_words().0.encode(text, Control::Spell).len()
}
