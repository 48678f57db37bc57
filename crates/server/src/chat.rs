//! `/v1/chat/completions`: from a request to a job, and from a job's texts to an answer.

use axum::extract::{Request, State};
use axum::response::Response;
use lapidary_text::{Conversation, Message, ToolCall};
use serde_json::{Map, Value};

use crate::app::App;
use crate::body::read;
use crate::constraint;
use crate::error::ApiError;
use crate::generate::{Answer, Delta, End, Generation, Job, Read};
use crate::info::json;
use crate::likelihood;
use crate::prompt::write;
use crate::sampling::{drafts, samples, sampling, stops, unavailable};
use crate::sse::{Dialect, Events, respond};
use crate::tools::{self, Choice};
use crate::wire::chat::{
    ChatAnswer, ChatCall, ChatChoice, ChatChunk, ChatCompletion, ChatDelta, ChatFunction,
    ChatRequest, ChunkChoice,
};
use crate::wire::common::ErrorBody;

/// Continues a conversation.
#[utoipa::path(post, path = "/v1/chat/completions", request_body = ChatRequest, responses(
    (status = 200, body = ChatCompletion), (status = 400, body = ErrorBody),
    (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(crate) async fn chat(State(app): State<App>, request: Request) -> Result<Response, ApiError> {
    let arrival = app.elapsed();
    let asked: ChatRequest = read(request, app.reading()).await?;
    let (mut generation, reply) = app
        .apart(move |app| {
            let reply = Reply::of(&asked, app)?;
            let generation = Generation::start(app, job(&asked, app)?, arrival)?;
            Ok((generation, reply))
        })
        .await?;
    if reply.stream {
        let heartbeat = app.settings().heartbeat;
        return Ok(respond(generation, Box::new(Chunks { reply, app, calls: 0 }), heartbeat));
    }
    let answers = generation.whole().await?;
    Ok(json(&reply.whole(answers, &generation, &app)))
}

/// The conversation that a request asks to continue.
pub(crate) fn conversation(asked: &ChatRequest, app: &App) -> Result<Conversation, ApiError> {
    let messages = asked.messages.as_ref().ok_or_else(|| ApiError::missing("messages"))?;
    let messages = Message::list_from_json(messages).map_err(|error| {
        let message = error.to_string();
        let path = message.split(' ').next().unwrap_or("messages").to_owned();
        ApiError::field(path, message)
    })?;
    let mut extra = asked.chat_template_kwargs.clone().unwrap_or_default();
    let usual = app.model().defaults.thinking;
    let thinking = thinking(asked, &mut extra)?.unwrap_or(usual);
    let tools = tools::declared(asked.tools.as_deref().unwrap_or_default())?;
    let tools = match Choice::of(asked.tool_choice.as_ref(), &tools)? {
        Choice::None => Vec::new(),
        Choice::Auto | Choice::Required | Choice::Named(_) => tools,
    };
    Ok(Conversation { tools, enable_thinking: thinking, extra, ..Conversation::new(messages) })
}

/// Whether the model is to think first, if the request says so.
fn thinking(asked: &ChatRequest, extra: &mut Map<String, Value>) -> Result<Option<bool>, ApiError> {
    let said = extra.shift_remove("enable_thinking");
    let said = said.map(|value| {
        let path = "chat_template_kwargs.enable_thinking";
        value
            .as_bool()
            .ok_or_else(|| ApiError::field(path, format!("{path} must be true or false")))
    });
    let effort = asked.reasoning_effort.as_deref().map(|effort| match effort {
        "none" | "minimal" => Ok(false),
        "low" | "medium" | "high" | "xhigh" | "max" => Ok(true),
        other => {
            let public = format!(
                "`reasoning_effort` is {other:?}; use none, minimal, low, medium, high, xhigh or max"
            );
            Err(ApiError::field("reasoning_effort", public))
        }
    });
    match (said.transpose()?, effort.transpose()?) {
        (Some(said), Some(effort)) if said != effort => {
            let public = "`reasoning_effort` and `enable_thinking` contradict each other; \
                          leave one out";
            Err(ApiError::field("reasoning_effort", public))
        }
        (said, effort) => Ok(said.or(effort)),
    }
}

/// The job that a request asks for.
pub(crate) fn job(asked: &ChatRequest, app: &App) -> Result<Job, ApiError> {
    refuse(asked)?;
    let chat = conversation(asked, app)?;
    let (tools, thinking) = (chat.tools.clone(), chat.enable_thinking);
    let written = write(chat, app)?;
    let grammar = constraint::of(asked, &tools, thinking, &written, app)?;
    Ok(Job {
        prompt: written.tokens,
        soft: written.soft,
        max_tokens: asked.max_completion_tokens.or(asked.max_tokens),
        sampling: sampling(&asked.sampling, app)?,
        stops: stops(&asked.sampling)?,
        min_tokens: asked.sampling.min_tokens.unwrap_or(0),
        logprobs: logprobs(asked)?,
        grammar,
        one_call: asked.parallel_tool_calls == Some(false),
        samples: samples(asked.n)?,
        drafts: drafts(&asked.sampling, app)?,
        read: Read::Reply,
    })
}

/// How many of the likeliest tokens to report at each place, if any are to be.
fn logprobs(asked: &ChatRequest) -> Result<Option<usize>, ApiError> {
    let top = asked.top_logprobs.filter(|top| *top > 0);
    match (asked.logprobs.unwrap_or(false), top) {
        (false, Some(_)) => {
            let public = "`top_logprobs` means nothing without `logprobs`; set that to true";
            Err(ApiError::field("top_logprobs", public))
        }
        (false, None) => Ok(None),
        (true, top) => likelihood::checked("top_logprobs", top.unwrap_or(0)).map(Some),
    }
}

/// Refuses what would have an effect that cannot be had.
fn refuse(asked: &ChatRequest) -> Result<(), ApiError> {
    let text_only = |modes: &Vec<String>| modes.iter().all(|mode| mode == "text");
    let given = [
        ("audio", asked.audio.is_some()),
        ("functions", asked.functions.is_some()),
        ("function_call", asked.function_call.is_some()),
        ("web_search_options", asked.web_search_options.is_some()),
        ("prediction", asked.prediction.is_some()),
        ("modalities", !asked.modalities.as_ref().is_none_or(text_only)),
    ];
    if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
        return Err(unavailable(name));
    }
    Ok(())
}

/// How a request wants its answer.
struct Reply {
    id: String,
    created: u64,
    model: String,
    stream: bool,
    /// Whether the stream ends with a chunk of usage.
    include_usage: bool,
    logprobs: bool,
}

impl Reply {
    fn of(asked: &ChatRequest, app: &App) -> Result<Self, ApiError> {
        let stream = asked.stream.unwrap_or(false);
        let options = asked.stream_options.clone().unwrap_or_default();
        if asked.stream_options.is_some() && !stream {
            let public = "`stream_options` means nothing without `stream`; leave it out";
            return Err(ApiError::field("stream_options", public));
        }
        Ok(Self {
            id: app.world().id("chatcmpl-"),
            created: (app.world().unix)(),
            model: app.name(asked.model.as_deref())?,
            stream,
            include_usage: options.include_usage.unwrap_or(false),
            logprobs: asked.logprobs.unwrap_or(false),
        })
    }

    fn whole(self, answers: Vec<Answer>, generation: &Generation, app: &App) -> ChatCompletion {
        let choices = (0..).zip(answers).map(|(index, answer)| self.choice(index, answer, app));
        ChatCompletion {
            choices: choices.collect(),
            id: self.id,
            object: "chat.completion",
            created: self.created,
            model: self.model,
            usage: generation.usage(),
            timings: generation.timings(),
        }
    }

    fn choice(&self, index: u32, answer: Answer, app: &App) -> ChatChoice {
        let only_calls = answer.content.is_empty() && !answer.calls.is_empty();
        let calls = answer.calls.into_iter().map(|call| chat_call(call, None, app)).collect();
        ChatChoice {
            index,
            message: ChatAnswer {
                role: "assistant",
                content: (!only_calls).then_some(answer.content),
                reasoning_content: Some(answer.reasoning).filter(|said| !said.is_empty()),
                refusal: None,
                tool_calls: calls,
            },
            logprobs: self.logprobs.then(|| likelihood::chat(&answer.heard, app)),
            finish_reason: answer.end.as_ref().map_or("stop", finish_reason),
        }
    }
}

fn chat_call(call: ToolCall, index: Option<u32>, app: &App) -> ChatCall {
    let arguments = call.arguments.to_string();
    let id = app.world().id("call_");
    ChatCall { index, id, kind: "function", function: ChatFunction { name: call.name, arguments } }
}

/// Why a text ended, in the words of this route.
pub(crate) fn finish_reason(end: &End) -> &'static str {
    match end {
        End::Stop | End::StopText(_) => "stop",
        End::Calls => "tool_calls",
        End::Length => "length",
        End::Failed(_) => "error",
    }
}

/// A chat answer as a stream of chunks.
struct Chunks {
    reply: Reply,
    app: App,
    /// Calls so far, of all texts.
    calls: u32,
}

impl Chunks {
    fn chunk(&self, choices: Vec<ChunkChoice>) -> ChatChunk<'_> {
        ChatChunk {
            id: &self.reply.id,
            object: "chat.completion.chunk",
            created: self.reply.created,
            model: &self.reply.model,
            choices,
            usage: self.reply.include_usage.then_some(None),
            timings: None,
        }
    }

    fn say(&self, events: &mut Events, index: u32, delta: ChatDelta) {
        let choice = ChunkChoice { index, delta, logprobs: None, finish_reason: None };
        events.data(&self.chunk(vec![choice]));
    }
}

impl Dialect for Chunks {
    fn begin(&mut self, events: &mut Events, generation: &Generation) {
        for index in 0..generation.samples() {
            let (role, content) = (Some("assistant"), Some(String::new()));
            self.say(events, index, ChatDelta { role, content, ..ChatDelta::default() });
        }
    }

    fn delta(&mut self, events: &mut Events, delta: Delta, generation: &Generation) {
        match delta {
            Delta::Content { sample: index, text, heard } => {
                let logprobs = self.reply.logprobs.then(|| likelihood::chat(&heard, &self.app));
                if text.is_empty() && logprobs.is_none() {
                    return;
                }
                let delta = ChatDelta { content: Some(text), ..ChatDelta::default() };
                let choice = ChunkChoice { index, delta, logprobs, finish_reason: None };
                events.data(&self.chunk(vec![choice]));
            }
            Delta::Reasoning { sample, text } => {
                let delta = ChatDelta { reasoning_content: Some(text), ..ChatDelta::default() };
                self.say(events, sample, delta);
            }
            Delta::Call { sample, call } => {
                let tool_calls = vec![chat_call(call, Some(self.calls), &self.app)];
                self.calls += 1;
                self.say(events, sample, ChatDelta { tool_calls, ..ChatDelta::default() });
            }
            Delta::Done { sample: index, end } => {
                let finish_reason = Some(finish_reason(&end));
                let delta = ChatDelta::default();
                let choice = ChunkChoice { index, delta, logprobs: None, finish_reason };
                // With usage they come in the chunk after this one.
                let timings = (!self.reply.include_usage).then(|| generation.timings());
                events.data(&ChatChunk { timings, ..self.chunk(vec![choice]) });
            }
        }
    }

    fn end(&mut self, events: &mut Events, generation: &Generation) {
        if self.reply.include_usage {
            let usage = Some(Some(generation.usage()));
            let timings = Some(generation.timings());
            events.data(&ChatChunk { usage, timings, ..self.chunk(Vec::new()) });
        }
        events.text("[DONE]");
    }

    fn fail(&mut self, events: &mut Events, error: &ApiError) {
        events.data(&error.openai());
    }
}
