//! `lapidary eval`: what a regime or a file costs in quality.

use std::num::NonZeroUsize;
use std::path::Path;

use lapidary_cache::{Extent, KvBytes};
use lapidary_core::KvKernels;
use lapidary_format::Source;
use lapidary_measure::{Divergence, Exam, Score, divergence, read_answers, windows};
use lapidary_model::Precision;
use lapidary_model::config::Config;
use lapidary_model::gemma::Gemma;
use lapidary_text::Control;
use serde_json::{Value, json};

use crate::args::{EvalArgs, Weights};
use crate::device::{Device, Work, run_on};
use crate::engine::{bar, cache, check_layers, context, extent, limits, load_model, stored_layers};
use crate::failure::Failure;
use crate::model::{self, Text, find};

/// Questions that are answered at once.
const SLOTS: usize = 16;
/// Tokens that a question and its answer may have together.
const ANSWER_CONTEXT: u32 = 4096;

pub(crate) fn eval(args: &EvalArgs) -> Result<u8, Failure> {
    let source = find(args.model.model.as_deref())?;
    run_on(&args.device, Eval { args, source })
}

struct Eval<'a> {
    args: &'a EvalArgs,
    source: Source,
}

impl Work for Eval<'_> {
    type Done = u8;

    fn on<D: Device>(self, settings: D::Settings) -> Result<u8, Failure> {
        let Self { args, source } = self;
        let text = Text::of(&source)?;
        let config = model::config(&source)?;
        check_layers(&args.device.kv, &config)?;
        check_layers(&args.against, &config)?;
        let ops = D::open(settings)?;
        let precision = match args.weights {
            Weights::Stored => Precision::AsStored,
            Weights::F32 => Precision::F32,
        };
        let model = load_model(&ops, &source, precision)?;
        let subject = Subject { ops, model, config, text };
        match (&args.kld, &args.answers) {
            (Some(file), _) => subject.kld(args, file),
            (None, Some(file)) => subject.answers(args, file),
            (None, None) => unreachable!("the parser asks for one of the two"),
        }
    }
}

/// A loaded model, ready for caches.
struct Subject<B: KvKernels> {
    ops: B,
    model: Gemma<B>,
    config: Config,
    text: Text,
}

impl<B: KvKernels> Subject<B> {
    fn kld(self, args: &EvalArgs, file: &Path) -> Result<u8, Failure> {
        let size = context(args.device.ctx, &self.config)?;
        let tokens = self.text.tokenizer.encode(&read(file)?, Control::Spell);
        let mut windows = windows(&tokens, size as usize, self.text.tokenizer.bos());
        windows.truncate(args.windows.map_or(usize::MAX, NonZeroUsize::get));
        if windows.is_empty() {
            let (file, have) = (file.display(), tokens.len());
            let message = format!("{file} has {have} tokens, less than a window; lower --ctx");
            return Err(Failure::usage("text_too_short", message));
        }
        let extent = extent(size);
        let (ops, model) = (&self.ops, &self.model);
        let mut baseline = cache(ops, model, &args.against, extent)?;
        let mut other = cache(ops, model, &args.device.kv, extent)?;
        let bar = bar("{bar:40} {pos} of {len} tokens, {eta} left");
        bar.set_length((windows.len() * size as usize) as u64);
        let mut progress = |rows| bar.set_position(rows as u64);
        let found = divergence(ops, model, &mut baseline, &mut other, &windows, &mut progress);
        bar.finish_and_clear();
        let found = found.map_err(|e| Failure::work("step", e))?;
        let bytes = KvBytes::per_slot(&extent, stored_layers(&self.config, &args.device.kv));
        show_divergence(&found, bytes, args);
        Ok(0)
    }

    fn answers(self, args: &EvalArgs, file: &Path) -> Result<u8, Failure> {
        let answers = read_answers(&read(file)?);
        let answers =
            answers.map_err(|e| Failure::work("answers", format!("{}: {e}", file.display())))?;
        if answers.is_empty() {
            let message = format!("{} holds no answers; give one a line", file.display());
            return Err(Failure::work("answers", message));
        }
        let context = context(args.device.ctx, &self.config)?.min(ANSWER_CONTEXT);
        let extent = Extent { slots: SLOTS, ..extent(context) };
        let mut cache = cache(&self.ops, &self.model, &args.device.kv, extent)?;
        let decode = |ids: &[_]| self.text.tokenizer.decode(ids);
        let exam = Exam {
            answers: &answers,
            end: &self.text.end,
            decode: &decode,
            limits: limits(extent),
        };
        let bar = bar("{bar:40} {pos} of {len} answers, {eta} left");
        bar.set_length(answers.len() as u64);
        let mut progress = |done| bar.set_position(done as u64);
        let score = exam.take(&self.ops, &self.model, &mut cache, &mut progress);
        bar.finish_and_clear();
        show_score(&score.map_err(|e| Failure::work("step", e))?, args.json);
        Ok(0)
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file);
    text.map_err(|e| Failure::work("text_unreadable", format!("{}: {e}", file.display())))
}

fn show_divergence(found: &Divergence, bytes: KvBytes, args: &EvalArgs) {
    if args.json {
        let report = json!({
            "tokens": found.tokens,
            "mean_kld": found.mean_kld,
            "median_kld": found.median_kld,
            "p99_kld": found.p99_kld,
            "same_top": found.same_top,
            "mean_nll": found.mean_nll,
            "ppl": found.perplexity(),
            "kv_bytes": { "global": bytes.global, "sliding": bytes.sliding },
        });
        println!("{report}");
        return;
    }
    let (kv, against) = (&args.device.kv, &args.against);
    println!("{kv} against {against}, {} positions", found.tokens);
    println!("mean KL     {:.6}", found.mean_kld);
    println!("median KL   {:.6}", found.median_kld);
    println!("99 % KL     {:.6}", found.p99_kld);
    println!("same top    {:.2} %", 100.0 * found.same_top);
    println!("mean NLL    {:.4}, perplexity {:.3}", found.mean_nll, found.perplexity());
    println!("cache       {} bytes per sequence", bytes.total());
}

fn show_score(score: &Score, json: bool) {
    let pair = |(ok, n): (usize, usize)| json!([ok, n]);
    if json {
        let categories = score.categories.iter().map(|(name, own)| (name.clone(), pair(*own)));
        let report = json!({
            "categories": Value::Object(categories.collect()),
            "total": pair((score.right, score.total)),
            "equal_tokens": pair((score.equal_tokens, score.total)),
        });
        println!("{report}");
        return;
    }
    for (category, (right, total)) in &score.categories {
        println!("{category:<12} {right:>4} of {total}");
    }
    println!("{:<12} {:>4} of {}", "right", score.right, score.total);
    println!("{:<12} {:>4} of {}", "equal tokens", score.equal_tokens, score.total);
}
