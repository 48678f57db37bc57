//! `lapidary run`: one answer, streamed.

use std::io::{IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use lapidary_core::TokenId;
use lapidary_engine::{Event, Finish, Guesses, Logprobs, Request, Ticket};
use lapidary_text::{
    Content, Control, Conversation, MediaKind, Message, Part, Passed, Reply, Role, StopStrings,
    Thinking, TokenText, ToolCall, normalise,
};
use serde_json::{Value, json};

use crate::args::{Preset, RunArgs, TemplateArgs};
use crate::engine::{Running, Seats, start_seeing};
use crate::failure::{Failure, INTERRUPTED};
use crate::hub::find_or_pull;
use crate::interrupt::Interrupt;
use crate::model::{Feature, Text, noticed};
use crate::rules::grammar;
use crate::sampling::sampling;
use crate::sight::{Found, place};

/// How often a wait for the next token looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let stop = StopStrings::new(args.sampling.stop.clone());
    let stop = stop.map_err(|e| Failure::usage("stop", e))?;
    let prompt = prompt_text(args)?;
    let source = find_or_pull(&args.model)?;
    let text = Text::with_template(&source, args.template.chat_template.as_deref())?;
    let eye = match args.image.is_empty() {
        true => None,
        false => {
            let found = Found::of(args.model.model.as_deref(), &source, &args.sight)?;
            Some(found.needed(&source)?)
        }
    };
    let pictures = eye.as_ref().map_or(Ok(Vec::new()), |eye| eye.pictures(&args.image))?;
    let prompt = prompt_tokens(args, &text, prompt)?;
    let mut sampling = sampling(&args.sampling, Preset::Greedy, &source, &text)?;
    if args.ignore_eos {
        sampling.suppress.extend(&text.end);
    }
    let thinking = if args.template.think { Thinking::First } else { Thinking::Never };
    let thinking = thinking.after(&prompt, &text.tokenizer);
    let grammar = grammar(&args.rules, &text.tokenizer, thinking)?;

    let interrupt = Interrupt::listen()?;
    let seats = Seats { slots: 1, waiting: 1 };
    let running = start_seeing(source, &args.device, &args.engine, seats, eye)?;
    let (prompt, soft) = place(pictures, prompt, &running.engine, &text.tokenizer)?;
    let request = Request {
        soft,
        max_tokens: args.sampling.max_tokens,
        min_tokens: args.min_tokens,
        stop: text.end.clone(),
        sampling,
        logprobs: args.logprobs,
        prompt_logprobs: args.prompt_logprobs,
        grammar,
        ..Request::new(running.engine.next_id(), prompt.clone())
    };
    let answer =
        interrupt.during(|pressed| answer(&running, request, &text, stop, args.json, pressed))?;
    if args.json {
        println!("{}", answer.report(&running, &text, &prompt, args));
    } else {
        println!();
    }
    running.stop(&args.engine)?;
    if let Some(reason) = answer.failed {
        return Err(Failure::work("engine", reason));
    }
    Ok(if answer.finish_reason == "cancelled" { INTERRUPTED } else { 0 })
}

/// The prompt from wherever it was said to be.
fn prompt_text(args: &RunArgs) -> Result<String, Failure> {
    match (&args.prompt, &args.prompt_file) {
        (Some(prompt), _) => Ok(prompt.clone()),
        (None, Some(file)) => std::fs::read_to_string(file)
            .map_err(|e| Failure::work("prompt", format!("{}: {e}", file.display()))),
        (None, None) => standard_input(),
    }
}

/// All of standard input, without the newline that ends its last line.
pub(crate) fn standard_input() -> Result<String, Failure> {
    if std::io::stdin().is_terminal() {
        eprintln!("note: reading from the terminal; Ctrl-D ends the text");
    }
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|e| Failure::work("prompt", format!("standard input: {e}")))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn prompt_tokens(args: &RunArgs, text: &Text, prompt: String) -> Result<Vec<TokenId>, Failure> {
    if args.raw {
        return Ok(text.tokenizer.with_bos(&text.tokenizer.encode(&prompt, Control::Honour)));
    }
    if prompt.is_empty() {
        let message = "the prompt is empty; give it as an argument, in a file or on standard input";
        return Err(Failure::usage("prompt", message));
    }
    let TemplateArgs { system, think, .. } = &args.template;
    let system = system.iter().map(|system| Message::new(Role::System, system.clone()));
    let messages = system.chain([question(args.image.len(), prompt)]).collect();
    let mut chat = Conversation { enable_thinking: *think, ..Conversation::new(messages) };
    normalise(&mut chat);
    let template = text.template()?;
    if *think {
        noticed(template, Feature::Thinking)?;
    }
    let rendered = template.render(&chat).map_err(|e| Failure::work("template", e))?;
    Ok(rendered.encode(&text.tokenizer))
}

/// What the person says: so many images, then the text.
fn question(images: usize, prompt: String) -> Message {
    if images == 0 {
        return Message::new(Role::User, prompt);
    }
    let image = || Part::Media { kind: MediaKind::Image, source: serde_json::Map::new() };
    let parts = std::iter::repeat_with(image).take(images).chain([Part::Text(prompt)]);
    Message { content: Some(Content::Parts(parts.collect())), ..Message::empty(Role::User) }
}

/// What came of a prompt.
struct Answer {
    text: String,
    tokens: Vec<TokenId>,
    /// One per token, if asked for.
    logprobs: Vec<Logprobs>,
    /// One per token of the prompt but the first, if asked for.
    prompt_logprobs: Vec<Logprobs>,
    finish_reason: &'static str,
    failed: Option<String>,
    cached: u32,
    guesses: Guesses,
    first: Option<Duration>,
    total: Duration,
}

/// Runs the request to its end, printing text as it comes unless `quiet`.
fn answer(
    running: &Running,
    request: Request,
    text: &Text,
    stop: StopStrings,
    quiet: bool,
    interrupted: &AtomicBool,
) -> Result<Answer, Failure> {
    let began = Instant::now();
    let submitted = running.engine.submit(request);
    let mut ticket = submitted.map_err(|e| Failure::work("refused", e))?;
    let mut answer = Answer {
        text: String::new(),
        tokens: Vec::new(),
        logprobs: Vec::new(),
        prompt_logprobs: Vec::new(),
        finish_reason: "cancelled",
        failed: None,
        cached: 0,
        guesses: Guesses::default(),
        first: None,
        total: Duration::ZERO,
    };
    let mut spelled = TokenText::new(stop);
    while let Some(event) = next_event(&mut ticket, interrupted) {
        match event {
            Event::Warm { tokens, .. } => answer.cached = tokens,
            Event::Prompt { logprobs, .. } => answer.prompt_logprobs = logprobs,
            Event::Embedding { .. } => {}
            Event::Token { token, logprobs, guesses, .. } => {
                answer.guesses = guesses;
                answer.first.get_or_insert_with(|| began.elapsed());
                answer.tokens.push(token);
                answer.logprobs.extend(logprobs.map(|logprobs| *logprobs));
                let passed = spelled.push(text.tokenizer.bytes(token));
                if answer.show(&passed, quiet)? {
                    break;
                }
            }
            Event::Finished { finish, guesses, .. } => {
                answer.guesses = guesses;
                answer.finish(finish);
                break;
            }
        }
    }
    answer.total = began.elapsed();
    answer.show(&spelled.finish(), quiet)?;
    answer.tokens.truncate(spelled.kept());
    answer.logprobs.truncate(spelled.kept());
    Ok(answer)
}

/// What happens next, or nothing once all is over or Ctrl-C was pressed.
pub(crate) fn next_event(ticket: &mut Ticket, interrupted: &AtomicBool) -> Option<Event> {
    while !interrupted.load(Ordering::Relaxed) {
        if let Poll::Ready(event) = ticket.next_within(PATIENCE) {
            return event;
        }
    }
    None
}

impl Answer {
    /// Takes in text, printing it unless `quiet`. Returns whether a stop string ended it.
    fn show(&mut self, passed: &Passed, quiet: bool) -> Result<bool, Failure> {
        self.text.push_str(&passed.text);
        if !quiet {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(passed.text.as_bytes()).and_then(|()| out.flush());
            written.map_err(|e| Failure::work("output", format!("standard output: {e}")))?;
        }
        if passed.stopped.is_some() {
            self.finish_reason = "stop";
        }
        Ok(passed.stopped.is_some())
    }

    fn finish(&mut self, finish: Finish) {
        self.finish_reason = match finish {
            Finish::Stop { .. } | Finish::Complete => "stop",
            Finish::Length => "length",
            Finish::Cancelled => "cancelled",
            Finish::Failed(reason) => {
                self.failed = Some(reason);
                "cancelled"
            }
        };
    }

    fn report(&self, running: &Running, text: &Text, prompt: &[TokenId], args: &RunArgs) -> Value {
        let parts = Reply::of(&self.tokens, &text.tokenizer);
        let structured = !parts.reasoning.is_empty() || !parts.tool_calls.is_empty();
        let call = |call: &ToolCall| json!({ "name": call.name, "arguments": call.arguments });
        let first = self.first.unwrap_or(self.total);
        let rest = self.total.saturating_sub(first);
        let decoded = self.tokens.len().saturating_sub(1);
        let Guesses { accepted, rejected } = self.guesses;
        let ids: Vec<_> = self.tokens.iter().map(|token| token.0).collect();
        let mut report = json!({
            // Without structure, the text as it was cut at stop strings.
            "text": if structured { &parts.content } else { &self.text },
            "reasoning": parts.reasoning,
            "tool_calls": parts.tool_calls.iter().map(call).collect::<Vec<_>>(),
            "token_ids": ids,
            "prompt_tokens": prompt.len(),
            "cached_tokens": self.cached,
            "drafted_tokens": accepted + rejected,
            "accepted_tokens": accepted,
            "rejected_tokens": rejected,
            "finish_reason": self.finish_reason,
            "prefill_tok_s": rate(prompt.len(), first),
            "decode_tok_s": rate(decoded, rest),
            "ttft_ms": first.as_secs_f64() * 1e3,
            "kv_bytes": { "global": running.kv_bytes.global, "sliding": running.kv_bytes.sliding },
            "seed": args.sampling.seed,
            "kv": args.device.kv.to_string(),
            "device": running.device,
        });
        if args.logprobs.is_some() {
            report["logprobs"] = likelihoods(&self.tokens, &self.logprobs, text);
        }
        if args.prompt_logprobs.is_some() {
            report["prompt_logprobs"] = likelihoods(&prompt[1..], &self.prompt_logprobs, text);
        }
        report
    }
}

/// How likely each token was, and what else was.
fn likelihoods(tokens: &[TokenId], logprobs: &[Logprobs], text: &Text) -> Value {
    let one = |token: TokenId, logprob: f64| {
        let spelling = String::from_utf8_lossy(text.tokenizer.bytes(token));
        json!({ "id": token.0, "token": spelling, "logprob": logprob })
    };
    let all = |(token, logprobs): (&TokenId, &Logprobs)| {
        let mut object = one(*token, logprobs.token);
        let top = logprobs.top.iter().map(|(token, logprob)| one(*token, *logprob));
        object["top_logprobs"] = top.collect();
        object
    };
    tokens.iter().zip(logprobs).map(all).collect()
}

/// Tokens per second; zero where nothing was timed.
pub(crate) fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}
