//! `/v1/completions`: a text continued as it stands.

use axum::extract::{Request, State};
use axum::response::Response;
use lapidary_core::TokenId;
use lapidary_text::Control;
use serde_json::Value;

use crate::app::App;
use crate::body::read;
use crate::chat::finish_reason;
use crate::constraint;
use crate::error::ApiError;
use crate::generate::{Answer, Delta, Generation, Job, Read};
use crate::info::json;
use crate::likelihood;
use crate::sampling::{drafts, samples, sampling, stops, unavailable};
use crate::sse::{Dialect, Events, respond};
use crate::wire::common::ErrorBody;
use crate::wire::completions::{
    Completion, CompletionChoice, CompletionLogprobs, CompletionRequest,
};

/// Continues a text.
#[utoipa::path(post, path = "/v1/completions", request_body = CompletionRequest, responses(
    (status = 200, body = Completion), (status = 400, body = ErrorBody),
    (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)))]
pub(crate) async fn completions(
    State(app): State<App>,
    request: Request,
) -> Result<Response, ApiError> {
    let arrival = app.elapsed();
    let asked: CompletionRequest = read(request, app.reading()).await?;
    let (mut generation, reply) = app
        .apart(move |app| {
            refuse(&asked)?;
            let (job, echo) = job(&asked, app)?;
            let reply = Reply::of(&asked, echo, app)?;
            let started = Generation::start(app, job, arrival);
            Ok((started.map_err(|error| error.of_prompt("prompt"))?, reply))
        })
        .await?;
    if reply.stream {
        let heartbeat = app.settings().heartbeat;
        let chunks = Chunks::new(reply, app, &generation);
        return Ok(respond(generation, Box::new(chunks), heartbeat));
    }
    let answers = generation.whole().await?;
    Ok(json(&reply.whole(answers, &generation, &app)))
}

/// Refuses what would have an effect that cannot be had.
fn refuse(asked: &CompletionRequest) -> Result<(), ApiError> {
    let given = [
        ("best_of", asked.best_of.is_some_and(|n| n > 1)),
        ("suffix", asked.suffix.as_ref().is_some_and(|text| !text.is_empty())),
    ];
    if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
        return Err(unavailable(name));
    }
    Ok(())
}

/// The job, and the text that an echo begins with.
fn job(asked: &CompletionRequest, app: &App) -> Result<(Job, String), ApiError> {
    let given = asked.prompt.as_ref().ok_or_else(|| ApiError::missing("prompt"))?;
    let (prompt, text) = prompt(given, app)?;
    let job = Job {
        soft: Vec::new(),
        prompt,
        max_tokens: asked.max_tokens,
        sampling: sampling(&asked.sampling, app)?,
        stops: stops(&asked.sampling)?,
        min_tokens: asked.sampling.min_tokens.unwrap_or(0),
        logprobs: asked.logprobs.map(|n| likelihood::checked("logprobs", n)).transpose()?,
        grammar: constraint::of_text(asked.response_format.as_ref(), app)?,
        one_call: false,
        samples: samples(asked.n)?,
        drafts: drafts(&asked.sampling, app)?,
        read: Read::Plain,
    };
    Ok((job, text))
}

/// Tokens of a prompt, beginning with exactly one beginning token, and its text.
fn prompt(given: &Value, app: &App) -> Result<(Vec<TokenId>, String), ApiError> {
    let tokenizer = &app.model().tokenizer;
    let wrong = || {
        let public = "`prompt` must be one text or one list of token ids; send several prompts as \
                      several requests";
        ApiError::field("prompt", public)
    };
    match given {
        Value::String(text) => {
            Ok((tokenizer.with_bos(&tokenizer.encode(text, Control::Honour)), text.clone()))
        }
        Value::Array(items) if items.len() == 1 && !items[0].is_number() => prompt(&items[0], app),
        Value::Array(items) => {
            let vocab = tokenizer.len() as u64;
            let id = |item: &Value| item.as_u64().filter(|id| *id < vocab);
            let ids: Option<Vec<_>> =
                items.iter().map(|item| Some(TokenId(id(item)? as u32))).collect();
            let ids = tokenizer.with_bos(&ids.ok_or_else(wrong)?);
            let text = tokenizer.decode(&ids[1..]);
            Ok((ids, text))
        }
        _ => Err(wrong()),
    }
}

/// How a request wants its answer.
struct Reply {
    id: String,
    created: u64,
    model: String,
    stream: bool,
    include_usage: bool,
    logprobs: bool,
    /// What each text begins with.
    echo: String,
}

impl Reply {
    fn of(asked: &CompletionRequest, prompt: String, app: &App) -> Result<Self, ApiError> {
        let options = asked.stream_options.clone().unwrap_or_default();
        Ok(Self {
            id: app.world().id("cmpl-"),
            created: (app.world().unix)(),
            model: app.name(asked.model.as_deref())?,
            stream: asked.stream.unwrap_or(false),
            include_usage: options.include_usage.unwrap_or(false),
            logprobs: asked.logprobs.is_some(),
            echo: if asked.echo.unwrap_or(false) { prompt } else { String::new() },
        })
    }

    fn frame(&self, choices: Vec<CompletionChoice>) -> Completion {
        Completion {
            id: self.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.model.clone(),
            choices,
            usage: None,
            timings: None,
        }
    }

    fn whole(self, answers: Vec<Answer>, generation: &Generation, app: &App) -> Completion {
        let choices = (0..).zip(answers).map(|(index, answer)| {
            let mut offset = self.echo.chars().count();
            let logprobs = || likelihood::completions(&answer.heard, &mut offset, app);
            CompletionChoice {
                index,
                logprobs: self.logprobs.then(logprobs),
                text: format!("{}{}", self.echo, answer.content),
                finish_reason: answer.end.as_ref().map(finish_reason),
            }
        });
        let whole = self.frame(choices.collect());
        let (usage, timings) = (Some(generation.usage()), Some(generation.timings()));
        Completion { usage, timings, ..whole }
    }
}

/// Texts as a stream of pieces.
struct Chunks {
    reply: Reply,
    app: App,
    /// Of each text, how many characters its tokens have had.
    offsets: Vec<usize>,
}

impl Chunks {
    fn new(reply: Reply, app: App, generation: &Generation) -> Self {
        let begin = reply.echo.chars().count();
        Self { reply, app, offsets: vec![begin; generation.samples() as usize] }
    }

    fn say(&self, events: &mut Events, choice: CompletionChoice) {
        events.data(&self.reply.frame(vec![choice]));
    }
}

impl Dialect for Chunks {
    fn begin(&mut self, events: &mut Events, generation: &Generation) {
        if self.reply.echo.is_empty() {
            return;
        }
        for index in 0..generation.samples() {
            let text = self.reply.echo.clone();
            self.say(events, CompletionChoice { index, text, logprobs: None, finish_reason: None });
        }
    }

    fn delta(&mut self, events: &mut Events, delta: Delta, _: &Generation) {
        match delta {
            Delta::Content { sample: index, text, heard } => {
                let offset = &mut self.offsets[index as usize];
                let logprobs: Option<CompletionLogprobs> =
                    self.reply.logprobs.then(|| likelihood::completions(&heard, offset, &self.app));
                if !text.is_empty() || logprobs.is_some() {
                    self.say(
                        events,
                        CompletionChoice { index, text, logprobs, finish_reason: None },
                    );
                }
            }
            Delta::Done { sample: index, end } => {
                let finish_reason = Some(finish_reason(&end));
                let text = String::new();
                self.say(events, CompletionChoice { index, text, logprobs: None, finish_reason });
            }
            // Plain text has neither.
            Delta::Reasoning { .. } | Delta::Call { .. } => {}
        }
    }

    fn end(&mut self, events: &mut Events, generation: &Generation) {
        if self.reply.include_usage {
            let (usage, timings) = (Some(generation.usage()), Some(generation.timings()));
            events.data(&Completion { usage, timings, ..self.reply.frame(Vec::new()) });
        }
        events.text("[DONE]");
    }

    fn fail(&mut self, events: &mut Events, error: &ApiError) {
        events.data(&error.openai());
    }
}
