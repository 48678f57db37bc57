//! `lapidary eval`: what a regime or a file costs in quality.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

use lapidary_cache::{Extent, KvBytes};
use lapidary_core::KvKernels;
use lapidary_engine::{Drafting, Target};
use lapidary_format::Source;
use lapidary_measure::{
    Answer, Divergence, Effort, Exam, Score, divergence, read_answers, windows,
};
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
use crate::run::rate;

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
        let bar = bar("{bar:40} {pos} of {len} answers, {eta} left");
        bar.set_length(answers.len() as u64);
        let scores = self.scores(args, &answers, &mut |done| bar.set_position(done as u64));
        bar.finish_and_clear();
        show_scores(&scores?, args.json);
        Ok(0)
    }

    /// The score of each category, one after another.
    fn scores(
        self,
        args: &EvalArgs,
        answers: &[Answer],
        progress: &mut dyn FnMut(usize),
    ) -> Result<BTreeMap<String, Score>, Failure> {
        args.draft.check()?;
        let context = context(args.device.ctx, &self.config)?.min(ANSWER_CONTEXT);
        let extent = Extent { slots: usize::from(args.slots), ..extent(context) };
        let mut cache = cache(&self.ops, &self.model, &args.device.kv, extent)?;
        let target = Config { vocab: self.model.vocab, ..self.config };
        let mut drafter = args.draft.drafter(&self.ops, &target, extent)?;
        let drafting = Drafting { adaptive: !args.draft_always, ..args.draft.drafting() };
        let decode = |ids: &[_]| self.text.tokenizer.decode(ids);
        let mut by_category = BTreeMap::<&String, Vec<Answer>>::new();
        for answer in answers {
            by_category.entry(&answer.category).or_default().push(answer.clone());
        }
        let (mut scores, mut before) = (BTreeMap::new(), 0);
        for (category, answers) in by_category {
            let (end, limits) = (&*self.text.end, limits(extent));
            let exam = Exam { answers: &answers, end, decode: &decode, limits };
            let target = Target { ops: &self.ops, model: &self.model, cache: &mut cache };
            let mut told = |done| progress(before + done);
            let score = exam.take_ahead(target, &mut *drafter, drafting, &mut told);
            scores.insert(category.clone(), score.map_err(|e| Failure::work("step", e))?);
            before += answers.len();
        }
        Ok(scores)
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

/// What all categories come to.
fn whole(scores: &BTreeMap<String, Score>) -> Score {
    let mut whole = Score::default();
    for score in scores.values() {
        whole.right += score.right;
        whole.total += score.total;
        whole.equal_tokens += score.equal_tokens;
        let Effort { tokens, guesses, time } = score.effort;
        whole.effort.tokens += tokens;
        whole.effort.guesses.accepted += guesses.accepted;
        whole.effort.guesses.rejected += guesses.rejected;
        whole.effort.time += time;
    }
    whole
}

fn show_scores(scores: &BTreeMap<String, Score>, json: bool) {
    let total = whole(scores);
    if json {
        let right = |score: &Score| json!([score.right, score.total]);
        let rights = scores.iter().map(|(name, score)| (name.clone(), right(score)));
        let efforts = scores.iter().map(|(name, score)| (name.clone(), effort(&score.effort)));
        let report = json!({
            "categories": Value::Object(rights.collect()),
            "total": right(&total),
            "equal_tokens": [total.equal_tokens, total.total],
            "effort": Value::Object(efforts.collect()),
            "total_effort": effort(&total.effort),
        });
        println!("{report}");
        return;
    }
    println!("{:<12} {:>11}  tok/s  tok/step  guesses", "", "right");
    for (category, score) in scores.iter().chain([(&"all".to_owned(), &total)]) {
        let Score { right, total, effort, .. } = score;
        let Effort { tokens, guesses, time } = effort;
        let (run, speed) = (guesses.accepted + guesses.rejected, rate(*tokens, *time));
        let (per_step, accepted) = (effort.tokens_per_step(), guesses.accepted);
        println!(
            "{category:<12} {right:>4} of {total:>3}  {speed:>5.0}  {per_step:>8.2}  {accepted} of {run}"
        );
    }
    println!("{:<12} {:>4} of {:>3}", "equal tokens", total.equal_tokens, total.total);
}

fn effort(effort: &Effort) -> Value {
    json!({
        "tokens": effort.tokens,
        "tok_s": rate(effort.tokens, effort.time),
        "tokens_per_step": effort.tokens_per_step(),
        "accepted": effort.guesses.accepted,
        "rejected": effort.guesses.rejected,
    })
}
