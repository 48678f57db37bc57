//! `lapidary imatrix`: how much each input of each projection matters.

use lapidary_cache::KvSpec;
use lapidary_convert::Imatrix;
use lapidary_convert::imatrix::{Observed, collect};
use lapidary_core::TokenId;
use lapidary_format::Source;
use lapidary_measure::windows;
use lapidary_model::Precision;
use lapidary_text::Control;
use serde_json::json;

use crate::args::files::ImatrixArgs;
use crate::device::{Device, Work, run_on};
use crate::engine::{bar, cache, extent, load_model};
use crate::failure::Failure;
use crate::model::{Text, find};

/// Chunks between two savings.
const SAVED_EVERY: u32 = 16;

pub(crate) fn imatrix(args: &ImatrixArgs) -> Result<u8, Failure> {
    let source = find(args.model.model.as_deref())?;
    let text = std::fs::read_to_string(&args.file).map_err(|e| {
        Failure::work("text_unreadable", format!("{} cannot be read: {e}", args.file.display()))
    })?;
    let tokenizer = Text::of(&source)?.tokenizer;
    let tokens = tokenizer.encode(&text, Control::Spell);
    let mut chunks = windows(&tokens, args.chunk as usize, tokenizer.bos());
    chunks.truncate(args.chunks.unwrap_or(usize::MAX));
    if chunks.is_empty() {
        let (file, have) = (args.file.display(), tokens.len());
        let message = format!("{file} has {have} tokens, less than a chunk; lower --chunk");
        return Err(Failure::usage("text_too_short", message));
    }
    let start = begun(args)?;
    let made = run_on(&args.device, Collect { args, source, chunks, imatrix: start })?;
    show(&made, args);
    Ok(0)
}

/// What a file of the same name already holds, if it was made from the same text.
fn begun(args: &ImatrixArgs) -> Result<Imatrix, Failure> {
    let empty = Imatrix::new(args.file.display().to_string(), args.chunk);
    if !args.output.exists() {
        return Ok(empty);
    }
    let found = Imatrix::read(&args.output).map_err(|e| Failure::work("imatrix_unreadable", e))?;
    if found.datasets == empty.datasets && found.chunk_size == args.chunk {
        eprintln!("continuing {} after {} chunks", args.output.display(), found.chunks);
        return Ok(found);
    }
    let message = format!(
        "{} was made from another text or with another --chunk; name another file",
        args.output.display()
    );
    Err(Failure::usage("imatrix_other", message))
}

struct Collect<'a> {
    args: &'a ImatrixArgs,
    source: Source,
    chunks: Vec<Vec<TokenId>>,
    imatrix: Imatrix,
}

impl Work for Collect<'_> {
    type Done = Imatrix;

    fn on<D: Device>(self, settings: D::Settings) -> Result<Imatrix, Failure> {
        let Self { args, source, chunks, mut imatrix } = self;
        let ops = Observed::new(D::open(settings)?);
        let model = load_model(&ops, &source, Precision::AsStored)?;
        let mut cache = cache(&ops, &model, &KvSpec::default(), extent(args.chunk))?;
        let bar = bar("chunk {pos} of {len} {bar:40} {eta} left");
        bar.set_length(chunks.len() as u64);
        let save =
            |imatrix: &Imatrix| imatrix.write(&args.output).map_err(|e| Failure::work("output", e));
        let mut saved = Ok(());
        let mut after = |imatrix: &Imatrix| {
            bar.set_position(imatrix.chunks.into());
            if imatrix.chunks.is_multiple_of(SAVED_EVERY) && saved.is_ok() {
                saved = save(imatrix);
            }
        };
        let done = collect(&ops, &model, &mut cache, &chunks, &mut imatrix, &mut after);
        bar.finish_and_clear();
        done.map_err(|e| Failure::work("imatrix", e))?;
        saved?;
        save(&imatrix)?;
        Ok(imatrix)
    }
}

fn show(imatrix: &Imatrix, args: &ImatrixArgs) {
    let stacks: Vec<_> = imatrix
        .names()
        .filter_map(|name| Some((name, imatrix.coverage(name)?)))
        .filter(|(_, coverage)| coverage.stack > 1)
        .collect();
    if args.json {
        let experts = stacks.iter().map(|(name, coverage)| {
            json!({
                "tensor": name, "experts": coverage.stack, "seen": coverage.seen,
                "fewest_rows": coverage.least,
            })
        });
        let report = json!({
            "file": args.output.display().to_string(),
            "chunks": imatrix.chunks,
            "matrices": imatrix.names().count(),
            "experts": experts.collect::<Vec<_>>(),
        });
        println!("{report}");
        return;
    }
    let (file, chunks) = (args.output.display(), imatrix.chunks);
    println!("{file}: {} matrices, {chunks} chunks", imatrix.names().count());
    for (name, coverage) in stacks {
        let (seen, stack, least) = (coverage.seen, coverage.stack, coverage.least);
        println!("  {name:<32} {seen} of {stack} experts seen, the least used {least} times");
    }
}
