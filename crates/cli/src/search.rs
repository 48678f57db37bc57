//! `lapidary quantize --target-size` and `--target-kld`: a type for every tensor by what its errors
//! do to the answers.

use std::path::Path;

use lapidary_cache::KvSpec;
use lapidary_convert::search::{Budget, Choice, Sensitivity, Variant, spend};
use lapidary_convert::{ConvertError, Draft, Imatrix, Progress, Workers};
use lapidary_core::{KvKernels, TensorSource, TokenId};
use lapidary_format::Source;
use lapidary_measure::{Baseline, windows};
use lapidary_model::Precision;
use lapidary_text::Control;

use crate::args::files::TargetArgs;
use crate::device::{Device, Work, run_on_cpu};
use crate::engine::{bar, cache, extent, load_model};
use crate::failure::Failure;
use crate::model::Text;

/// How often a divergence that was asked for is approached.
const ATTEMPTS: usize = 6;
/// How much of a divergence that was asked for is enough.
const NEAR_ENOUGH: f64 = 0.9;

/// What came of a search.
pub(crate) struct Found {
    pub(crate) choices: Vec<Choice>,
    /// Divergence of the whole, in nats, on the text.
    pub(crate) measured: f64,
}

/// A search for types: what for, and with what.
pub(crate) struct Search<'a> {
    pub(crate) source: &'a Source,
    pub(crate) draft: &'a Draft<'a>,
    pub(crate) importance: Option<&'a Imatrix>,
    pub(crate) workers: &'a Workers,
    pub(crate) args: &'a TargetArgs,
    pub(crate) text: &'a Path,
    pub(crate) json: bool,
    pub(crate) threads: Option<u16>,
}

impl Search<'_> {
    /// Measures every tensor and chooses.
    pub(crate) fn run(self) -> Result<Found, Failure> {
        let threads = self.threads;
        run_on_cpu(threads, self)
    }

    fn windows(&self, text: &Path) -> Result<Vec<Vec<TokenId>>, Failure> {
        let words = std::fs::read_to_string(text).map_err(|e| {
            Failure::work("text_unreadable", format!("{} cannot be read: {e}", text.display()))
        })?;
        let tokenizer = Text::of(self.source)?.tokenizer;
        let tokens = tokenizer.encode(&words, Control::Spell);
        let mut cut = windows(&tokens, self.args.window as usize, tokenizer.bos());
        cut.truncate(self.args.windows);
        if cut.is_empty() {
            let message = format!("{} has less than a window; lower --window", text.display());
            return Err(Failure::usage("text_too_short", message));
        }
        Ok(cut)
    }
}

impl Work for Search<'_> {
    type Done = Found;

    fn on<D: Device>(self, settings: D::Settings) -> Result<Found, Failure> {
        let ops = D::open(settings)?;
        let windows = self.windows(self.text)?;
        let mut judge = Judge::new(&ops, self.source, windows, self.args.window)?;
        let bar = bar("measuring {bar:40} {pos} of {len} tensors, {eta} left, {msg}");
        let mut progress = |at: Progress<'_>| {
            bar.set_length(at.total);
            bar.set_position(at.done);
            bar.set_message(at.tensor.to_owned());
        };
        let mut measure = |variant: &Variant<'_>| judge.measure(variant).map_err(Stopped);
        let measured =
            self.draft.sensitivities(self.importance, self.workers, &mut measure, &mut progress);
        bar.finish_and_clear();
        let tensors = measured.map_err(|Stopped(failure)| failure)?;
        let mut whole = |choices: &[Choice]| {
            let variant = self.draft.variant(choices, self.importance, self.workers);
            let variant = variant.map_err(|e| Failure::work("conversion", e))?;
            judge.measure(&variant)
        };
        let found = match (self.args.target_size, self.args.target_kld) {
            (Some(bytes), _) => {
                let choices = spend(&tensors, Budget::Bytes(free_bytes(self.draft, bytes)?));
                let measured = whole(&choices)?;
                Found { choices, measured }
            }
            (None, Some(kld)) => approach(&tensors, kld, &mut whole)?,
            (None, None) => unreachable!("a search has a target"),
        };
        if !self.json {
            show(&tensors, &found);
        }
        Ok(found)
    }
}

/// What is left of a file's size for the tensors whose type is free.
fn free_bytes(draft: &Draft<'_>, bytes: u64) -> Result<u64, Failure> {
    let fixed = draft.fixed_bytes();
    bytes.checked_sub(fixed).ok_or_else(|| {
        let message = format!(
            "--target-size {bytes} is less than the {fixed} bytes of vectors, which keep their type"
        );
        Failure::usage("target", message)
    })
}

/// Spends as little as keeps the measured divergence at `most`: what is inferred is off by some
/// factor, which every attempt tells better.
fn approach(
    tensors: &[Sensitivity],
    most: f64,
    whole: &mut dyn FnMut(&[Choice]) -> Result<f64, Failure>,
) -> Result<Found, Failure> {
    let (mut asked, mut best) = (most, None::<Found>);
    for _ in 0..ATTEMPTS {
        let choices = spend(tensors, Budget::Harm(asked));
        let measured = whole(&choices)?;
        let size = |found: &Found| found.choices.iter().map(|choice| choice.bytes).sum::<u64>();
        let found = Found { choices, measured };
        if measured <= most && best.as_ref().is_none_or(|best| size(&found) < size(best)) {
            best = Some(found);
        }
        if (NEAR_ENOUGH * most..=most).contains(&measured) {
            break;
        }
        asked *= (0.97 * most / measured.max(1e-9)).clamp(0.1, 4.0);
    }
    best.ok_or_else(|| {
        let message = format!("no choice of types keeps the divergence at {most}; ask for more");
        Failure::work("target", message)
    })
}

/// Runs variants of a model over a text, next to the model itself.
struct Judge<'a, B: KvKernels> {
    ops: &'a B,
    baseline: Baseline,
    window: u32,
}

impl<'a, B: KvKernels> Judge<'a, B> {
    fn new(
        ops: &'a B,
        source: &dyn TensorSource,
        windows: Vec<Vec<TokenId>>,
        window: u32,
    ) -> Result<Self, Failure> {
        let model = load_model(ops, source, Precision::F32)?;
        let mut cache = cache(ops, &model, &KvSpec::default(), extent(window))?;
        let baseline = Baseline::record(ops, &model, &mut cache, windows);
        Ok(Self { ops, baseline: baseline.map_err(|e| Failure::work("step", e))?, window })
    }

    /// Weights are decoded to floats: what is measured is their errors, not those of rounded
    /// activations.
    fn measure(&mut self, variant: &Variant<'_>) -> Result<f64, Failure> {
        let ops = self.ops;
        let loaded = lapidary_model::load(ops, variant, Precision::F32, &mut |_, _| {});
        let (_, model) = loaded.map_err(|e| Failure::work("model_unreadable", e))?;
        let mut cache = cache(ops, &model, &KvSpec::default(), extent(self.window))?;
        let distance = self.baseline.compare(ops, &model, &mut cache);
        Ok(distance.map_err(|e| Failure::work("step", e))?.whole.mean_kld)
    }
}

/// A search that came to an end, whoever ended it.
struct Stopped(Failure);

impl From<ConvertError> for Stopped {
    fn from(error: ConvertError) -> Self {
        Self(Failure::work("conversion", error))
    }
}

/// What was chosen and why, the most sensitive first.
fn show(tensors: &[Sensitivity], found: &Found) {
    let mut lines: Vec<_> = tensors.iter().zip(&found.choices).collect();
    lines.sort_by(|a, b| b.0.tried.1.total_cmp(&a.0.tried.1));
    println!(
        "{:<32} {:<7} {:>12}  divergence alone; what the next size would save",
        "tensor", "type", "bytes"
    );
    for (tensor, choice) in lines {
        let (block, harm) = tensor.tried;
        let next = choice.next.map_or_else(
            || "nothing finer is worth it".to_owned(),
            |(block, gain)| format!("{block} would save {:.1e} per MB", gain * 1e6),
        );
        let Choice { name, block: chosen, bytes, .. } = choice;
        println!("{name:<32} {:<7} {bytes:>12}  {harm:.2e} as {block}; {next}", chosen.to_string());
    }
    let inferred: f64 = found.choices.iter().map(|choice| choice.harm).sum();
    println!("divergence {:.5} measured, {inferred:.5} inferred", found.measured);
}
