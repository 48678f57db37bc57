//! `lapidary embed`: texts to vectors, many at once.

use std::collections::VecDeque;

use lapidary_core::TokenId;
use lapidary_engine::{Engine, Event, Finish, Pooling, Request, Ticket};
use lapidary_text::Control;
use serde_json::{Value, json};

use crate::args::{DeviceArgs, EmbedArgs, EngineArgs, PoolingName};
use crate::engine::start_for;
use crate::failure::Failure;
use crate::model::{Text, find};
use crate::run::standard_input;

/// Texts that are read at once.
const SLOTS: usize = 8;

pub(crate) fn embed(args: &EmbedArgs) -> Result<u8, Failure> {
    let texts = texts(args)?;
    let source = find(args.model.model.as_deref())?;
    let tokenizer = Text::of(&source)?.tokenizer;
    let tokens = |text: &String| tokenizer.with_bos(&tokenizer.encode(text, Control::Spell));
    let prompts: Vec<_> = texts.iter().map(tokens).collect();
    let longest = prompts.iter().map(Vec::len).max().unwrap_or_default();
    // No more context is reserved than the longest text takes.
    let ctx = args.device.ctx.unwrap_or_else(|| longest.max(2) as u32);
    let device = DeviceArgs { ctx: Some(ctx), ..args.device.clone() };
    let running =
        start_for(source, &device, &EngineArgs::default(), prompts.len().clamp(1, SLOTS))?;
    let pooling = match args.pooling {
        PoolingName::Mean => Pooling::Mean,
        PoolingName::Last => Pooling::Last,
    };
    let vectors = vectors(&running.engine, &prompts, pooling)?;
    if args.json {
        println!("{}", report(&prompts, &vectors, pooling, &running.device));
    } else {
        for vector in vectors {
            let numbers: Vec<_> = vector.iter().map(f32::to_string).collect();
            println!("{}", numbers.join(" "));
        }
    }
    Ok(0)
}

/// The texts from wherever they were said to be.
fn texts(args: &EmbedArgs) -> Result<Vec<String>, Failure> {
    let texts = match &args.file {
        Some(file) => {
            let lines = std::fs::read_to_string(file)
                .map_err(|e| Failure::work("texts", format!("{}: {e}", file.display())))?;
            let numbered = (1..).zip(lines.lines()).filter(|(_, line)| !line.trim().is_empty());
            numbered.map(|(n, line)| text_of(n, line)).collect::<Result<_, _>>()?
        }
        None if args.texts.is_empty() => standard_input()?.lines().map(str::to_owned).collect(),
        None => args.texts.clone(),
    };
    if texts.is_empty() {
        return Err(Failure::usage("texts", "there is no text; give at least one"));
    }
    Ok(texts)
}

/// The text of one JSON line.
fn text_of(n: usize, line: &str) -> Result<String, Failure> {
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    let text = value.as_str().or_else(|| value["text"].as_str());
    text.map(str::to_owned).ok_or_else(|| {
        Failure::work("texts", format!("line {n} is no JSON string and no object with a `text`"))
    })
}

/// One vector per prompt, in order. One more than there are slots is always on its way.
fn vectors(
    engine: &Engine,
    prompts: &[Vec<TokenId>],
    pooling: Pooling,
) -> Result<Vec<Vec<f32>>, Failure> {
    let mut tickets = VecDeque::new();
    let mut vectors = Vec::new();
    for prompt in prompts {
        if tickets.len() > SLOTS.min(prompts.len()) {
            vectors.extend(tickets.pop_front().map(vector).transpose()?);
        }
        let request = Request::embedding(engine.next_id(), prompt.clone(), pooling);
        let ticket = engine.submit(request).map_err(|e| Failure::work("refused", e))?;
        tickets.push_back(ticket);
    }
    for ticket in tickets {
        vectors.push(vector(ticket)?);
    }
    Ok(vectors)
}

fn vector(ticket: Ticket) -> Result<Vec<f32>, Failure> {
    let mut vector = None;
    for event in ticket {
        match event {
            Event::Embedding { values, .. } => vector = Some(values),
            Event::Finished { finish: Finish::Failed(reason), .. } => {
                return Err(Failure::work("engine", reason));
            }
            _ => {}
        }
    }
    vector.ok_or_else(|| Failure::work("engine", "a text ended without its vector"))
}

fn report(prompts: &[Vec<TokenId>], vectors: &[Vec<f32>], pooling: Pooling, device: &str) -> Value {
    let one = |(index, (prompt, vector)): (usize, (&Vec<TokenId>, &Vec<f32>))| json!({ "index": index, "prompt_tokens": prompt.len(), "embedding": vector });
    let embeddings: Vec<_> = prompts.iter().zip(vectors).enumerate().map(one).collect();
    let pooling = match pooling {
        Pooling::Mean => "mean",
        Pooling::Last => "last",
    };
    json!({ "embeddings": embeddings, "pooling": pooling, "device": device })
}
