//! `/v1/messages`: Anthropic's form of a chat request, and of its answer.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::body::read;
use crate::chat::{conversation, job};
use crate::error::ApiError;
use crate::generate::{Answer, Delta, End, Generation};
use crate::info::json as answer;
use crate::prompt::write;
use crate::sampling::unavailable;
use crate::sse::{Dialect, Events, respond};
use crate::wire::chat::ChatRequest;
use crate::wire::common::{SamplingFields, Stop, Usage};
use crate::wire::messages::{Block, MessageAnswer, MessageUsage, MessagesRequest, TokenCount};

/// Continues a conversation, in Anthropic's form.
#[utoipa::path(post, path = "/v1/messages", request_body = MessagesRequest,
    responses((status = 200, body = MessageAnswer), (status = 400, body = Object)))]
pub(crate) async fn messages(State(app): State<App>, request: Request) -> Response {
    answered(app, request).await.unwrap_or_else(ApiError::into_anthropic)
}

async fn answered(app: App, request: Request) -> Result<Response, ApiError> {
    let arrival = app.elapsed();
    let asked: MessagesRequest = read(request, app.reading()).await?;
    let stream = asked.stream.unwrap_or(false);
    let (mut generation, reply) = app
        .apart(move |app| {
            if asked.max_tokens.is_none() {
                return Err(ApiError::missing("max_tokens"));
            }
            let model = app.name(asked.model.as_deref())?;
            let generation = Generation::start(app, job(&chat_request(asked)?, app)?, arrival)?;
            Ok((generation, Reply { id: app.world().id("msg_"), model }))
        })
        .await?;
    if stream {
        let heartbeat = app.settings().heartbeat;
        let events = Stream { reply, app, open: None, blocks: 0, end: None };
        return Ok(respond(generation, Box::new(events), heartbeat));
    }
    let answers = generation.whole().await?;
    Ok(answer(&reply.whole(answers, &generation, &app)))
}

/// Counts the tokens of a request without answering it.
#[utoipa::path(post, path = "/v1/messages/count_tokens", request_body = MessagesRequest,
    responses((status = 200, body = TokenCount), (status = 400, body = Object)))]
pub(crate) async fn count_tokens(State(app): State<App>, request: Request) -> Response {
    counted(app, request).await.unwrap_or_else(ApiError::into_anthropic)
}

async fn counted(app: App, request: Request) -> Result<Response, ApiError> {
    let asked: MessagesRequest = read(request, app.reading()).await?;
    app.apart(move |app| {
        app.name(asked.model.as_deref())?;
        let written = write(conversation(&chat_request(asked)?, app)?, app)?;
        let input_tokens = written.tokens.len() as u64;
        Ok(answer(&TokenCount { input_tokens }).into_response())
    })
    .await
}

/// The same request in chat's form.
pub(crate) fn chat_request(asked: MessagesRequest) -> Result<ChatRequest, ApiError> {
    let given = [("mcp_servers", &asked.mcp_servers), ("container", &asked.container)];
    if let Some((name, _)) = given.iter().find(|(_, value)| value.is_some()) {
        return Err(unavailable(name));
    }
    let messages = asked.messages.ok_or_else(|| ApiError::missing("messages"))?;
    let turns = messages.as_array().cloned();
    let turns = turns.ok_or_else(|| ApiError::field("messages", "`messages` must be a list"))?;
    let mut list: Vec<Value> = Vec::new();
    if let Some(system) = asked.system.filter(|system| !system.is_null()) {
        list.push(json!({ "role": "system", "content": system }));
    }
    for (i, turn) in turns.into_iter().enumerate() {
        list.extend(said(i, &turn)?);
    }
    let (enable_thinking, thinking_budget) = thinking(asked.thinking.as_ref())?;
    let variables =
        enable_thinking.map(|on| Map::from_iter([("enable_thinking".into(), json!(on))]));
    let (tool_choice, parallel_tool_calls) = choice(asked.tool_choice.as_ref())?;
    let tools = asked.tools.map(|tools| (0..).zip(tools).map(|(i, t)| tool(i, &t)).collect());
    Ok(ChatRequest {
        model: asked.model,
        messages: Some(Value::Array(list)),
        tools: tools.transpose()?,
        tool_choice,
        parallel_tool_calls,
        max_tokens: asked.max_tokens,
        thinking_budget,
        chat_template_kwargs: variables,
        sampling: SamplingFields {
            temperature: asked.temperature,
            top_p: asked.top_p,
            top_k: asked.top_k,
            stop: asked.stop_sequences.map(Stop::Several),
            ..SamplingFields::default()
        },
        ..ChatRequest::default()
    })
}

/// A turn as chat messages: results of functions are messages of their own.
fn said(i: usize, turn: &Value) -> Result<Vec<Value>, ApiError> {
    let role = turn["role"].as_str().unwrap_or_default();
    let Some(blocks) = turn["content"].as_array() else {
        return Ok(vec![turn.clone()]);
    };
    let (mut parts, mut calls, mut results) = (Vec::new(), Vec::new(), Vec::new());
    let mut thoughts = String::new();
    for (j, block) in blocks.iter().enumerate() {
        match block["type"].as_str() {
            Some("tool_use") => calls.push(json!({
                "id": block["id"], "type": "function",
                "function": { "name": block["name"], "arguments": block["input"] },
            })),
            Some("tool_result") => results.push(json!({
                "role": "tool", "tool_call_id": block["tool_use_id"],
                "content": result(block),
            })),
            Some("thinking") => thoughts.push_str(block["thinking"].as_str().unwrap_or_default()),
            Some("redacted_thinking") => {}
            Some("text" | "image") => parts.push(block.clone()),
            _ => {
                let path = format!("messages[{i}].content[{j}]");
                let public = format!(
                    "{path} is of no known type; use text, image, thinking, tool_use or tool_result"
                );
                return Err(ApiError::field(&path, public));
            }
        }
    }
    let mut message = Map::from_iter([("role".to_owned(), json!(role))]);
    if !parts.is_empty() {
        message.insert("content".to_owned(), Value::Array(parts));
    }
    if !thoughts.is_empty() {
        message.insert("reasoning".to_owned(), json!(thoughts));
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    if message.len() > 1 {
        results.push(Value::Object(message));
    }
    Ok(results)
}

/// What a function returned, as text.
fn result(block: &Value) -> Value {
    match &block["content"] {
        Value::Null => json!(""),
        content => content.clone(),
    }
}

fn thinking(asked: Option<&Value>) -> Result<(Option<bool>, Option<u32>), ApiError> {
    let Some(asked) = asked.filter(|asked| !asked.is_null()) else { return Ok((None, None)) };
    let budget =
        asked["budget_tokens"].as_u64().map(|budget| budget.min(u64::from(u32::MAX)) as u32);
    match asked["type"].as_str() {
        Some("enabled" | "adaptive") => Ok((Some(true), budget)),
        Some("disabled") => Ok((Some(false), None)),
        _ => {
            let public = "`thinking.type` must be enabled, adaptive or disabled";
            Err(ApiError::field("thinking.type", public))
        }
    }
}

fn choice(asked: Option<&Value>) -> Result<(Option<Value>, Option<bool>), ApiError> {
    let Some(asked) = asked.filter(|asked| !asked.is_null()) else { return Ok((None, None)) };
    let parallel = asked["disable_parallel_tool_use"].as_bool().map(|disabled| !disabled);
    let choice = match asked["type"].as_str() {
        Some("auto") => json!("auto"),
        Some("any") => json!("required"),
        Some("none") => json!("none"),
        Some("tool") => json!({ "type": "function", "function": { "name": asked["name"] } }),
        _ => {
            let public = "`tool_choice.type` must be auto, any, tool or none";
            return Err(ApiError::field("tool_choice.type", public));
        }
    };
    Ok((Some(choice), parallel))
}

fn tool(i: usize, tool: &Value) -> Result<Value, ApiError> {
    if !matches!(tool["type"].as_str(), None | Some("custom")) {
        let path = format!("tools[{i}].type");
        let public =
            format!("{path} is not `custom`; only the client's own functions can be called");
        return Err(ApiError::unsupported(&path, public));
    }
    let mut function = Map::new();
    for (theirs, ours) in
        [("name", "name"), ("description", "description"), ("input_schema", "parameters")]
    {
        if let Some(value) = tool.get(theirs) {
            function.insert(ours.to_owned(), value.clone());
        }
    }
    Ok(json!({ "type": "function", "function": function }))
}

/// What is the same in every event of an answer.
struct Reply {
    id: String,
    model: String,
}

impl Reply {
    fn frame(&self, content: Vec<Block>, end: Option<&End>, usage: &Usage) -> MessageAnswer {
        MessageAnswer {
            id: self.id.clone(),
            kind: "message",
            role: "assistant",
            model: self.model.clone(),
            content,
            stop_reason: end.map(stop_reason),
            stop_sequence: end.and_then(stop_sequence),
            usage: counted_usage(usage),
        }
    }

    fn whole(&self, answers: Vec<Answer>, generation: &Generation, app: &App) -> MessageAnswer {
        let said = answers.into_iter().next().unwrap_or_default();
        let mut content = Vec::new();
        if !said.reasoning.is_empty() {
            content.push(Block::Thinking { thinking: said.reasoning, signature: "" });
        }
        if !said.content.is_empty() {
            content.push(Block::Text { text: said.content });
        }
        content.extend(said.calls.into_iter().map(|call| Block::ToolUse {
            id: app.world().id("toolu_"),
            name: call.name,
            input: call.arguments,
        }));
        self.frame(content, said.end.as_ref(), &generation.usage())
    }
}

fn stop_reason(end: &End) -> &'static str {
    match end {
        End::Stop | End::Failed(_) => "end_turn",
        End::StopText(_) => "stop_sequence",
        End::Calls => "tool_use",
        End::Length => "max_tokens",
    }
}

fn stop_sequence(end: &End) -> Option<String> {
    match end {
        End::StopText(text) => Some(text.clone()),
        _ => None,
    }
}

fn counted_usage(usage: &Usage) -> MessageUsage {
    let cached = usage.prompt_tokens_details.cached_tokens;
    MessageUsage {
        input_tokens: usage.prompt_tokens - cached,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: cached,
        output_tokens: usage.completion_tokens,
    }
}

/// What kind of block is being written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Open {
    Text,
    Thinking,
}

/// An answer as a stream of events.
struct Stream {
    reply: Reply,
    app: App,
    open: Option<Open>,
    /// Blocks begun.
    blocks: usize,
    end: Option<End>,
}

impl Stream {
    /// Sees to it that a block of this kind is being written.
    fn block(&mut self, events: &mut Events, kind: Open) {
        if self.open != Some(kind) {
            self.close(events);
            let block = match kind {
                Open::Text => Block::Text { text: String::new() },
                Open::Thinking => Block::Thinking { thinking: String::new(), signature: "" },
            };
            self.begin_block(events, &block);
            self.open = Some(kind);
        }
    }

    fn begin_block(&mut self, events: &mut Events, block: &Block) {
        let start = json!({
            "type": "content_block_start", "index": self.blocks, "content_block": block,
        });
        events.named("content_block_start", &start);
        self.blocks += 1;
    }

    fn add(&self, events: &mut Events, delta: &Value) {
        let index = self.blocks - 1;
        let delta = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        events.named("content_block_delta", &delta);
    }

    fn end_block(&self, events: &mut Events) {
        let stop = json!({ "type": "content_block_stop", "index": self.blocks - 1 });
        events.named("content_block_stop", &stop);
    }

    fn close(&mut self, events: &mut Events) {
        if self.open.take().is_some() {
            self.end_block(events);
        }
    }
}

impl Dialect for Stream {
    fn begin(&mut self, events: &mut Events, generation: &Generation) {
        let message = self.reply.frame(Vec::new(), None, &generation.usage());
        events.named("message_start", &json!({ "type": "message_start", "message": message }));
    }

    fn delta(&mut self, events: &mut Events, delta: Delta, _: &Generation) {
        match delta {
            Delta::Content { text, .. } if text.is_empty() => {}
            Delta::Content { text, .. } => {
                self.block(events, Open::Text);
                self.add(events, &json!({ "type": "text_delta", "text": text }));
            }
            Delta::Reasoning { text, .. } => {
                self.block(events, Open::Thinking);
                self.add(events, &json!({ "type": "thinking_delta", "thinking": text }));
            }
            Delta::Call { call, .. } => {
                self.close(events);
                let id = self.app.world().id("toolu_");
                let input = Value::Object(Map::new());
                self.begin_block(events, &Block::ToolUse { id, name: call.name, input });
                let partial = call.arguments.to_string();
                let delta = json!({ "type": "input_json_delta", "partial_json": partial });
                self.add(events, &delta);
                self.end_block(events);
            }
            Delta::Done { end, .. } => self.end = Some(end),
        }
    }

    fn end(&mut self, events: &mut Events, generation: &Generation) {
        self.close(events);
        let end = self.end.as_ref();
        let delta = json!({
            "type": "message_delta",
            "delta": {
                "stop_reason": end.map(stop_reason), "stop_sequence": end.and_then(stop_sequence),
            },
            "usage": counted_usage(&generation.usage()),
        });
        events.named("message_delta", &delta);
        events.named("message_stop", &json!({ "type": "message_stop" }));
    }

    fn fail(&mut self, events: &mut Events, error: &ApiError) {
        events.named("error", &error.anthropic());
    }
}
