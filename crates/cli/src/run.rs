//! `lapidary run`: one answer, streamed.

use std::io::{IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use lapidary_core::TokenId;
use lapidary_engine::{Event, Finish, Request, Sampling, Ticket};
use lapidary_format::Source;
use lapidary_text::{
    Control, Conversation, Message, Reply, Role, StopStrings, TextStream, ToolCall, normalise,
};
use serde_json::{Value, json};

use crate::args::{Preset, RunArgs, SamplingArgs, TemplateArgs};
use crate::engine::{Running, start};
use crate::failure::{Failure, INTERRUPTED};
use crate::interrupt::Interrupt;
use crate::model::{Feature, Recommended, Text, find, noticed};

/// How often a wait for the next token looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let stop = StopStrings::new(args.sampling.stop.clone());
    let stop = stop.map_err(|e| Failure::usage("stop", e))?;
    let prompt = prompt_text(args)?;
    let source = find(args.model.model.as_deref())?;
    let text = Text::with_template(&source, args.template.chat_template.as_deref())?;
    let prompt = prompt_tokens(args, &text, prompt)?;
    let sampling = sampling(&args.sampling, Preset::Greedy, &source, &text)?;

    let interrupt = Interrupt::listen()?;
    let running = start(source, &args.device, &args.engine)?;
    let request = Request {
        max_tokens: args.sampling.max_tokens,
        stop: text.end.clone(),
        sampling,
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
    let messages = system.chain([Message::new(Role::User, prompt)]).collect();
    let mut chat = Conversation { enable_thinking: *think, ..Conversation::new(messages) };
    normalise(&mut chat);
    let template = text.template()?;
    if *think {
        noticed(template, Feature::Thinking)?;
    }
    let rendered = template.render(&chat).map_err(|e| Failure::work("template", e))?;
    Ok(rendered.encode(&text.tokenizer))
}

/// The settings that were typed, over those of `preset` unless another was typed too.
pub(crate) fn sampling(
    args: &SamplingArgs,
    preset: Preset,
    source: &Source,
    text: &Text,
) -> Result<Sampling, Failure> {
    let recommended = Recommended::of(source);
    let start = match args.sampling.unwrap_or(preset) {
        Preset::Greedy => Sampling::default(),
        Preset::Model => Sampling {
            temperature: recommended.temperature,
            top_k: recommended.top_k,
            top_p: recommended.top_p,
            ..Sampling::default()
        },
    };
    let sampling = Sampling {
        seed: args.seed,
        temperature: args.temp.unwrap_or(start.temperature),
        top_k: args.top_k.unwrap_or(start.top_k),
        top_p: args.top_p.unwrap_or(start.top_p),
        min_p: args.min_p.unwrap_or(start.min_p),
        repeat_penalty: args.repeat_penalty.unwrap_or(start.repeat_penalty),
        suppress: text.suppress.clone(),
        ..start
    };
    sampling.check().map_err(|e| Failure::usage("sampling", e))?;
    Ok(sampling)
}

/// What came of a prompt.
struct Answer {
    text: String,
    tokens: Vec<TokenId>,
    finish_reason: &'static str,
    failed: Option<String>,
    cached: u32,
    first: Option<Duration>,
    total: Duration,
}

/// Runs the request to its end, printing text as it comes unless `quiet`.
fn answer(
    running: &Running,
    request: Request,
    text: &Text,
    mut stop: StopStrings,
    quiet: bool,
    interrupted: &AtomicBool,
) -> Result<Answer, Failure> {
    let began = Instant::now();
    let submitted = running.engine.submit(request);
    let mut ticket = submitted.map_err(|e| Failure::work("refused", e))?;
    let mut answer = Answer {
        text: String::new(),
        tokens: Vec::new(),
        finish_reason: "cancelled",
        failed: None,
        cached: 0,
        first: None,
        total: Duration::ZERO,
    };
    let mut stream = TextStream::default();
    while let Some(event) = next_event(&mut ticket, interrupted) {
        match event {
            Event::Warm { tokens, .. } => answer.cached = tokens,
            Event::Prompt { .. } | Event::Embedding { .. } => {}
            Event::Token { token, .. } => {
                answer.first.get_or_insert_with(|| began.elapsed());
                answer.tokens.push(token);
                let passed = stop.push(&stream.push(text.tokenizer.bytes(token)));
                answer.show(&passed.text, quiet)?;
                if passed.stopped.is_some() {
                    answer.finish_reason = "stop";
                    answer.total = began.elapsed();
                    return Ok(answer);
                }
            }
            Event::Finished { finish, .. } => {
                answer.finish(finish);
                break;
            }
        }
    }
    answer.total = began.elapsed();
    let rest = stop.push(&stream.finish());
    answer.show(&rest.text, quiet)?;
    if rest.stopped.is_none() {
        answer.show(&stop.finish(), quiet)?;
    }
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
    fn show(&mut self, text: &str, quiet: bool) -> Result<(), Failure> {
        self.text.push_str(text);
        if quiet {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        written.map_err(|e| Failure::work("output", format!("standard output: {e}")))
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
        // One request, so the engine's counts are its own.
        let work = running.engine.stats().work;
        let ids: Vec<_> = self.tokens.iter().map(|token| token.0).collect();
        json!({
            // Without structure, the text as it was cut at stop strings.
            "text": if structured { &parts.content } else { &self.text },
            "reasoning": parts.reasoning,
            "tool_calls": parts.tool_calls.iter().map(call).collect::<Vec<_>>(),
            "token_ids": ids,
            "prompt_tokens": prompt.len(),
            "cached_tokens": self.cached,
            "drafted_tokens": work.drafted,
            "accepted_tokens": work.accepted,
            "finish_reason": self.finish_reason,
            "prefill_tok_s": rate(prompt.len(), first),
            "decode_tok_s": rate(decoded, rest),
            "ttft_ms": first.as_secs_f64() * 1e3,
            "kv_bytes": { "global": running.kv_bytes.global, "sliding": running.kv_bytes.sliding },
            "seed": args.sampling.seed,
            "kv": args.device.kv.to_string(),
            "device": running.device,
        })
    }
}

/// Tokens per second; zero where nothing was timed.
pub(crate) fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}
