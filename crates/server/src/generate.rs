//! From a job to the engine and back: the only place that builds engine requests and reads tickets.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lapidary_core::{Constraint, TokenId};
use lapidary_engine::{Event, Finish, Guesses, Pooling, Request, Sampling, Soft, Ticket};
use lapidary_text::{ReplyStream, StopStrings, TextStream, ToolCall};

use crate::app::App;
use crate::error::ApiError;
use crate::voice::{Heard, Reader, Said, Voice};
use crate::wire::common::{CompletionTokens, PromptTokens, Timings, Usage};

/// Texts to be made.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) prompt: Vec<TokenId>,
    /// Pictures in the prompt.
    pub(crate) soft: Vec<Soft>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) sampling: Sampling,
    /// Texts that end an answer.
    pub(crate) stops: Vec<String>,
    /// Fewest tokens before a text may end.
    pub(crate) min_tokens: u32,
    /// Report how likely each token was, and so many of the likeliest.
    pub(crate) logprobs: Option<usize>,
    /// What each text must conform to.
    pub(crate) grammar: Option<Arc<dyn Constraint>>,
    /// Whether a text ends after its first call.
    pub(crate) one_call: bool,
    /// How many texts to make.
    pub(crate) samples: u32,
    /// The most guesses in a row, if fewer than the server's.
    pub(crate) drafts: Option<usize>,
    pub(crate) read: Read,
}

/// How the texts are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Read {
    /// As replies of the chat format.
    Reply,
    /// As text and nothing else.
    Plain,
}

/// Something that happened to one of the texts.
#[derive(Debug)]
pub(crate) enum Delta {
    /// Words for the reader, and the tokens they begin in.
    Content { sample: u32, text: String, heard: Vec<Heard> },
    /// Words of thought.
    Reasoning { sample: u32, text: String },
    /// A complete call.
    Call { sample: u32, call: ToolCall },
    /// The end of a text.
    Done { sample: u32, end: End },
}

/// Why a text ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// The model ended it.
    Stop,
    /// This stop text came up.
    StopText(String),
    /// The model waits for the results of its calls.
    Calls,
    /// The most tokens, or the end of the context.
    Length,
    /// The engine broke down, for this reason.
    Failed(String),
}

/// The texts of a job while they are made. Dropping it cancels the job.
pub(crate) struct Generation {
    app: App,
    /// Absent once there is nothing to come.
    ticket: Option<Ticket>,
    voices: Vec<Voice>,
    stops: Vec<String>,
    one_call: bool,
    done: Vec<bool>,
    /// What became of each text's guesses.
    guesses: Vec<Guesses>,
    ready: VecDeque<Delta>,
    prompt: u64,
    cached: u64,
    seed: u64,
    arrival: Duration,
    first: Option<Duration>,
    last: Duration,
}

impl Generation {
    /// Hands the job to the engine, and waits for as long as the step under way takes.
    pub(crate) fn start(app: &App, job: Job, arrival: Duration) -> Result<Self, ApiError> {
        let tokenizer = &app.model().tokenizer;
        let context = app.model().context;
        if job.prompt.len() >= context as usize {
            return Err(ApiError::too_long(job.prompt.len(), context));
        }
        if app.settings().log_prompts {
            tracing::info!(prompt = tokenizer.decode(&job.prompt), "prompt");
        }
        let reader = match job.read {
            Read::Reply => Reader::Reply(ReplyStream::after(&job.prompt, tokenizer)),
            Read::Plain => Reader::Plain(TextStream::default()),
        };
        let request = Request {
            soft: job.soft,
            max_tokens: job.max_tokens,
            stop: app.model().end.clone(),
            sampling: job.sampling.clone(),
            min_tokens: job.min_tokens,
            logprobs: job.logprobs,
            grammar: job.grammar,
            samples: job.samples,
            drafts: job.drafts,
            ..Request::new(app.engine().next_id(), job.prompt.clone())
        };
        let samples = job.samples as usize;
        let stops = StopStrings::new(job.stops.clone());
        let stops = stops.map_err(|error| ApiError::field("stop", error.to_string()))?;
        let ticket = app.engine().submit(request)?;
        Ok(Self {
            app: app.clone(),
            ticket: Some(ticket),
            voices: vec![Voice::new(reader, stops); samples],
            stops: job.stops,
            one_call: job.one_call,
            done: vec![false; samples],
            guesses: vec![Guesses::default(); samples],
            ready: VecDeque::new(),
            prompt: job.prompt.len() as u64,
            cached: 0,
            seed: job.sampling.seed,
            arrival,
            first: None,
            last: arrival,
        })
    }

    /// How many texts there will be.
    pub(crate) fn samples(&self) -> u32 {
        self.voices.len() as u32
    }

    /// What happens next; nothing once every text has ended.
    pub(crate) async fn next(&mut self) -> Option<Delta> {
        poll_fn(|context| self.poll(context)).await
    }

    /// What happens next, if it has; otherwise the context's task is woken when it does.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Delta>> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Poll::Ready(Some(delta));
            }
            let Some(ticket) = &mut self.ticket else { return Poll::Ready(None) };
            match ticket.poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => self.ticket = None,
                Poll::Ready(Some(event)) => self.handle(event),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Warm { tokens, .. } => self.cached = u64::from(tokens),
            // Not asked for by jobs.
            Event::Prompt { .. } | Event::Embedding { .. } => {}
            Event::Token { sample, token, logprobs, guesses, .. } => {
                if !self.done[sample as usize] {
                    self.guesses[sample as usize] = guesses;
                    self.note_token();
                    self.hear(sample, Heard { token, logprobs });
                }
            }
            Event::Finished { sample, finish, guesses, .. } => {
                if !self.done[sample as usize] {
                    self.guesses[sample as usize] = guesses;
                    self.finish(sample, finish);
                }
            }
        }
    }

    fn hear(&mut self, sample: u32, heard: Heard) {
        let app = self.app.clone();
        let voice = &mut self.voices[sample as usize];
        let said = voice.hear(heard, &app.model().tokenizer);
        let stopped = voice.stopped();
        let called = self.one_call && voice.has_called();
        self.tell(sample, said);
        if let Some(stop) = stopped {
            self.end(sample, End::StopText(self.stops[stop].clone()));
        } else if called {
            self.end(sample, End::Calls);
        }
    }

    fn finish(&mut self, sample: u32, finish: Finish) {
        let app = self.app.clone();
        let voice = &mut self.voices[sample as usize];
        let said = voice.end(&app.model().tokenizer);
        let end = match finish {
            Finish::Stop { .. } | Finish::Complete if voice.has_called() => End::Calls,
            Finish::Stop { .. } | Finish::Complete => match voice.stopped() {
                Some(stop) => End::StopText(self.stops[stop].clone()),
                None => End::Stop,
            },
            Finish::Length => End::Length,
            Finish::Cancelled => End::Failed("the request was cancelled".to_owned()),
            Finish::Failed(reason) => End::Failed(reason),
        };
        self.tell(sample, said);
        self.end(sample, end);
    }

    fn tell(&mut self, sample: u32, said: Vec<Said>) {
        self.ready.extend(said.into_iter().map(|said| match said {
            Said::Content(text, heard) => Delta::Content { sample, text, heard },
            Said::Reasoning(text) => Delta::Reasoning { sample, text },
            Said::Call(call) => Delta::Call { sample, call },
        }));
    }

    /// Notes the end of a text. With the last one the engine is let go, so that nothing is made
    /// that nobody gets to see.
    fn end(&mut self, sample: u32, end: End) {
        self.done[sample as usize] = true;
        self.ready.push_back(Delta::Done { sample, end });
        if self.done.iter().all(|done| *done) {
            self.ticket = None;
            let usage = self.usage();
            self.app.metrics().tokens(&usage);
        }
    }

    fn note_token(&mut self) {
        let now = self.app.elapsed();
        match self.first {
            None => {
                self.first = Some(now);
                self.app.metrics().first_token(now.saturating_sub(self.arrival));
            }
            Some(_) => self.app.metrics().next_token(now.saturating_sub(self.last)),
        }
        self.last = now;
    }

    /// What has been used so far.
    pub(crate) fn usage(&self) -> Usage {
        let counts = self.voices.iter().map(Voice::counts);
        let (written, reasoning) = counts.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        let sum = |of: fn(&Guesses) -> u32| self.guesses.iter().map(|g| u64::from(of(g))).sum();
        Usage {
            prompt_tokens: self.prompt,
            completion_tokens: written,
            total_tokens: self.prompt + written,
            prompt_tokens_details: PromptTokens { cached_tokens: self.cached },
            completion_tokens_details: CompletionTokens {
                reasoning_tokens: reasoning,
                accepted_prediction_tokens: sum(|guesses| guesses.accepted),
                rejected_prediction_tokens: sum(|guesses| guesses.rejected),
            },
        }
    }

    /// How long it took so far.
    pub(crate) fn timings(&self) -> Timings {
        let first = self.first.unwrap_or(self.last);
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let writing = self.last.saturating_sub(first);
        let written = self.usage().completion_tokens;
        let after_first = written.saturating_sub(1) as f64;
        let rate = if writing.is_zero() { 0.0 } else { after_first / writing.as_secs_f64() };
        Timings {
            prompt_n: self.prompt - self.cached,
            cache_n: self.cached,
            prompt_ms: ms(first.saturating_sub(self.arrival)),
            predicted_n: written,
            predicted_ms: ms(writing),
            predicted_per_second: (rate * 100.0).round() / 100.0,
            seed: self.seed,
        }
    }
}

/// A whole answer: what all deltas of one text come to.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) heard: Vec<Heard>,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) end: Option<End>,
}

impl Generation {
    /// Waits for every text.
    pub(crate) async fn whole(&mut self) -> Result<Vec<Answer>, ApiError> {
        let mut answers: Vec<Answer> = (0..self.samples()).map(|_| Answer::default()).collect();
        while let Some(delta) = self.next().await {
            match delta {
                Delta::Content { sample, text, heard } => {
                    let answer = &mut answers[sample as usize];
                    answer.content.push_str(&text);
                    answer.heard.extend(heard);
                }
                Delta::Reasoning { sample, text } => {
                    answers[sample as usize].reasoning.push_str(&text);
                }
                Delta::Call { sample, call } => answers[sample as usize].calls.push(call),
                Delta::Done { end: End::Failed(reason), .. } => {
                    return Err(ApiError::failed(reason));
                }
                Delta::Done { sample, end } => answers[sample as usize].end = Some(end),
            }
        }
        Ok(answers)
    }
}

/// The vector of a text.
pub(crate) async fn vector(
    app: &App,
    prompt: Vec<TokenId>,
    pooling: Pooling,
) -> Result<Vec<f32>, ApiError> {
    let context = app.model().context;
    if prompt.len() > context as usize {
        return Err(ApiError::too_long(prompt.len(), context).of_prompt("input"));
    }
    let submit = move |app: &App| {
        let request = Request::embedding(app.engine().next_id(), prompt, pooling);
        Ok(app.engine().submit(request)?)
    };
    let mut ticket = app.apart(submit).await?;
    let mut vector = None;
    while let Some(event) = poll_fn(|context| ticket.poll_next(context)).await {
        match event {
            Event::Embedding { values, .. } => vector = Some(values),
            Event::Finished { finish: Finish::Failed(reason), .. } => {
                return Err(ApiError::failed(reason));
            }
            _ => {}
        }
    }
    vector.ok_or_else(|| ApiError::failed("the engine made no vector".to_owned()))
}
