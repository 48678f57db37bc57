//! Divergence of one cache from another, on the same text, window by window.

use lapidary_core::{Backend, Batch, KvCache, SlotId, TokenId, Want};
use lapidary_model::{Model, Outputs, StepError, run};

/// Rows whose logits are held at a time.
const CHUNK: usize = 64;
const SLOT: SlotId = SlotId(0);

/// How far distributions over the next token are from a baseline's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Divergence {
    /// Positions that were scored.
    pub tokens: usize,
    /// Mean of `KL(baseline ‖ other)` in nats.
    pub mean_kld: f64,
    /// Its median.
    pub median_kld: f64,
    /// Its 99th percentile.
    pub p99_kld: f64,
    /// Share of positions at which both have the same likeliest token.
    pub same_top: f64,
    /// Mean negative log-likelihood of the text under the other, in nats.
    pub mean_nll: f64,
}

impl Divergence {
    /// `e` to the mean negative log-likelihood.
    pub fn perplexity(&self) -> f64 {
        self.mean_nll.exp()
    }
}

/// What is known about one position.
pub(crate) struct Position {
    pub(crate) kld: f64,
    same_top: bool,
    nll: f64,
}

/// Cuts a text into whole windows of `size` tokens, `bos` and then the text's next `size - 1`.
pub fn windows(text: &[TokenId], size: usize, bos: TokenId) -> Vec<Vec<TokenId>> {
    let bodies = text.chunks_exact(size.saturating_sub(1).max(1));
    bodies.map(|body| [&[bos], body].concat()).collect()
}

/// Runs every window through both caches and compares the second half of each. Both caches are
/// cleared first, and hold the last window afterwards. `progress` is called with the rows done.
///
/// # Errors
/// A cache is too small for a window, or the device failed.
pub fn divergence<B: Backend>(
    ops: &B,
    model: &dyn Model<B>,
    baseline: &mut dyn KvCache<B>,
    other: &mut dyn KvCache<B>,
    windows: &[Vec<TokenId>],
    progress: &mut dyn FnMut(usize),
) -> Result<Divergence, StepError> {
    let mut positions = Vec::new();
    let mut done = 0;
    for window in windows {
        baseline.clear(SLOT);
        other.clear(SLOT);
        for (i, chunk) in window.chunks(CHUNK).enumerate() {
            let base = i * CHUNK;
            let scored = window.len() / 2..window.len() - 1;
            let want = |i| if scored.contains(&(base + i)) { Want::LOGITS } else { Want::NOTHING };
            let batch = Batch::builder().chain(SLOT, base as u32, chunk, want);
            let batch = batch.expect("chunks are not empty and one slot is used").build();
            let ours = step(ops, model, baseline, &batch)?;
            let theirs = step(ops, model, other, &batch)?;
            positions.extend(compare(&ours, &theirs, &window[base + 1..]));
            done += chunk.len();
            progress(done);
        }
    }
    Ok(summary(positions))
}

fn step<B: Backend>(
    ops: &B,
    model: &dyn Model<B>,
    cache: &mut dyn KvCache<B>,
    batch: &Batch,
) -> Result<Outputs, StepError> {
    let out = run(ops, model, cache, batch)?;
    cache.commit(ops, SLOT, &(0..batch.rows().len()).collect::<Vec<_>>());
    Ok(out)
}

/// Compares rows of logits, in parallel. `next[row]` is the token after row `row`.
fn compare(ours: &Outputs, theirs: &Outputs, next: &[TokenId]) -> Vec<Position> {
    let rows: Vec<_> = ours.logits.iter().zip(&theirs.logits).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = rows.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts = rows.chunks(share).map(|part| {
            scope.spawn(move || {
                part.iter().map(|((row, p), (_, q))| position(p, q, next[*row])).collect::<Vec<_>>()
            })
        });
        let parts: Vec<_> = parts.collect();
        let join = |part: std::thread::ScopedJoinHandle<'_, Vec<Position>>| {
            part.join().expect("comparing numbers does not panic")
        };
        parts.into_iter().flat_map(join).collect()
    })
}

pub(crate) fn position(p: &[f32], q: &[f32], next: TokenId) -> Position {
    let (p, q) = (Distribution::of(p), Distribution::of(q));
    // KL = Σ p · ((log p) − (log q)); weights are exponentials still to be divided by their sum.
    let terms = p.logits.iter().zip(q.logits).zip(&p.weights);
    let weighted: f64 = terms.map(|((p, q), weight)| f64::from(*weight) * f64::from(p - q)).sum();
    Position {
        kld: (weighted / p.sum - p.log_sum() + q.log_sum()).max(0.0),
        same_top: p.top == q.top,
        nll: q.log_sum() - f64::from(q.logits[next.index()]),
    }
}

/// What a row of logits says about the next token.
struct Distribution<'a> {
    logits: &'a [f32],
    /// The likeliest index, the lower among equals, and its logit.
    top: usize,
    most: f32,
    /// Exponentials of the logits' distances from the likeliest.
    weights: Vec<f32>,
    sum: f64,
}

impl<'a> Distribution<'a> {
    fn of(logits: &'a [f32]) -> Self {
        let (mut top, mut most) = (0, f32::NEG_INFINITY);
        for (i, &logit) in logits.iter().enumerate() {
            if logit > most {
                (top, most) = (i, logit);
            }
        }
        let weights: Vec<f32> = logits.iter().map(|logit| (logit - most).exp()).collect();
        let sum = weights.iter().map(|weight| f64::from(*weight)).sum();
        Self { logits, top, most, weights, sum }
    }

    fn log_sum(&self) -> f64 {
        f64::from(self.most) + self.sum.ln()
    }
}

pub(crate) fn summary(positions: Vec<Position>) -> Divergence {
    let tokens = positions.len();
    if tokens == 0 {
        return Divergence::default();
    }
    let mean = |f: fn(&Position) -> f64| positions.iter().map(f).sum::<f64>() / tokens as f64;
    let mut klds: Vec<_> = positions.iter().map(|position| position.kld).collect();
    klds.sort_by(f64::total_cmp);
    let rank = |part: f64| klds[((tokens - 1) as f64 * part).round() as usize];
    Divergence {
        tokens,
        mean_kld: mean(|position| position.kld),
        median_kld: rank(0.5),
        p99_kld: rank(0.99),
        same_top: mean(|position| f64::from(u8::from(position.same_top))),
        mean_nll: mean(|position| position.nll),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_of_known_distributions() {
        let logits = |p: &[f64]| p.iter().map(|p| p.ln() as f32 + 3.0).collect::<Vec<_>>();
        let (p, q) = ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]);
        let position = position(&logits(&p), &logits(&q), TokenId(2));
        let expected = 0.5 * 2.0_f64.ln() + 0.25 * 0.5_f64.ln();
        assert!((position.kld - expected).abs() < 1e-6, "{}", position.kld);
        assert!((position.nll - 4.0_f64.ln()).abs() < 1e-6, "{}", position.nll);
        assert!(!position.same_top);
    }

    #[test]
    fn windows_are_whole_and_begin_with_bos() {
        let text: Vec<_> = (10..21).map(TokenId).collect();
        let cut = windows(&text, 5, TokenId(2));
        let ids = |w: &Vec<TokenId>| w.iter().map(|t| t.0).collect::<Vec<_>>();
        let cut: Vec<_> = cut.iter().map(ids).collect();
        assert_eq!(cut, [[2, 10, 11, 12, 13], [2, 14, 15, 16, 17]]);
    }
}
