//! Plan, forward, head: what happens to a batch.

use lapidary_core::{
    Backend, Batch, CacheFull, Candidate, DeviceError, KvCache, KvLayerSpec, KvPlan, LayerId, Row,
    TokenId,
};
use thiserror::Error;

/// A decoder, as the engine sees it.
pub trait Model<B: Backend> {
    /// What the model needs from a cache, layer by layer.
    fn kv_specs(&self) -> Vec<KvLayerSpec>;
    /// Whether a layer stores entries of its own, or reads an earlier layer's.
    fn owns_entries(&self, layer: LayerId) -> bool {
        let _ = layer;
        true
    }
    /// Width of a hidden state.
    fn hidden(&self) -> usize;
    /// Entries of the vocabulary, the width of a row of logits.
    fn vocab(&self) -> usize;
    /// The scaled embeddings of vocabulary entries, as rows of the first layer's input.
    fn embed(&self, ops: &B, tokens: &[TokenId]) -> B::Act;
    /// Runs the rows through every layer. The result has one normed hidden state per row.
    fn forward(
        &self,
        ops: &B,
        cache: &mut dyn KvCache<B>,
        step: &Step<'_, B>,
        hooks: &mut dyn Hooks<B>,
    ) -> B::Act;
    /// Next-token logits of the given hidden states.
    fn logits(&self, ops: &B, hidden: &B::Act) -> B::Act;
    /// The likeliest `k` tokens after each of `rows` hidden states, likeliest first.
    ///
    /// # Errors
    /// The device failed.
    fn likeliest(
        &self,
        ops: &B,
        hidden: &B::Act,
        rows: usize,
        k: usize,
    ) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        ops.top(&self.logits(ops, hidden), rows, k)
    }
}

/// A batch and what was decided about it, once, for all layers.
pub struct Step<'a, B: Backend> {
    /// The rows.
    pub batch: &'a Batch,
    /// Their cache reads and writes.
    pub kv: KvPlan<B>,
    /// Matrices of soft tokens, indexed by [`SoftId`](lapidary_core::SoftId). They are as wide as
    /// a hidden state and enter unscaled.
    pub soft: &'a [B::Act],
}

/// Watches, or adds to, the residual stream between layers. A hook belongs to the loop over
/// layers, never to a layer.
///
/// The row law binds hooks too: what is done to a row depends on that row alone.
pub trait Hooks<B: Backend> {
    /// Sees what is about to run.
    fn batch(&mut self, batch: &Batch) {
        let _ = batch;
    }

    /// Sees the scaled embeddings and hands on what the first layer gets.
    fn embedded(&mut self, ops: &B, h: B::Act) -> B::Act {
        let _ = ops;
        h
    }

    /// Sees the output of a layer; what it returns is what the next one gets instead.
    fn after_layer(&mut self, ops: &B, layer: LayerId, h: &B::Act) -> Option<B::Act> {
        let _ = (ops, layer, h);
        None
    }
}

/// Leaves the stream alone.
#[derive(Clone, Copy, Debug)]
pub struct NoHooks;

impl<B: Backend> Hooks<B> for NoHooks {}

/// What a step returned, in row order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs {
    /// `(row, hidden state)` for every row that wanted one.
    pub hidden: Vec<(usize, Vec<f32>)>,
    /// `(row, logits)` likewise.
    pub logits: Vec<(usize, Vec<f32>)>,
    /// `(row, likeliest next tokens)` likewise, likeliest first.
    pub top: Vec<(usize, Vec<Candidate>)>,
}

/// Why a step did not run, or did not finish.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum StepError {
    /// The cache had no room. Nothing was changed.
    #[error(transparent)]
    Cache(#[from] CacheFull),
    /// The device failed. The cache is not to be trusted.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Runs a batch of tokens: the common case of [`run_with`].
///
/// # Errors
/// See [`run_with`].
pub fn run<B: Backend>(
    ops: &B,
    model: &dyn Model<B>,
    cache: &mut dyn KvCache<B>,
    batch: &Batch,
) -> Result<Outputs, StepError> {
    run_with(ops, model, cache, batch, &[], &mut NoHooks)
}

/// Plans a batch, runs it and reads back what its rows want. The cache holds the rows afterwards,
/// uncommitted.
///
/// # Errors
/// [`StepError::Cache`] before anything was done, [`StepError::Device`] after the device failed.
pub fn run_with<B: Backend>(
    ops: &B,
    model: &dyn Model<B>,
    cache: &mut dyn KvCache<B>,
    batch: &Batch,
    soft: &[B::Act],
    hooks: &mut dyn Hooks<B>,
) -> Result<Outputs, StepError> {
    let kv = cache.plan(ops, batch)?;
    Ok(run_step(ops, model, cache, &Step { batch, kv, soft }, hooks)?)
}

/// Runs a batch that has been planned and reads back what its rows want: [`run_with`] for those who
/// plan it themselves.
///
/// # Errors
/// The device failed; the cache is not to be trusted.
pub fn run_step<B: Backend>(
    ops: &B,
    model: &dyn Model<B>,
    cache: &mut dyn KvCache<B>,
    step: &Step<'_, B>,
    hooks: &mut dyn Hooks<B>,
) -> Result<Outputs, DeviceError> {
    let batch = step.batch;
    hooks.batch(batch);
    let states = model.forward(ops, cache, step, hooks);
    let hidden = fetch(ops, batch, |row| row.want.hidden, |rows| ops.select(&states, rows))?;
    let (logits, top) = decide(ops, model, batch, &states)?;
    ops.finish()?;
    Ok(Outputs { hidden, logits, top })
}

/// Whole rows of logits with their rows.
type Whole = Vec<(usize, Vec<f32>)>;
/// The likeliest tokens with their rows.
type Likeliest = Vec<(usize, Vec<Candidate>)>;

/// Whole rows of logits and the likeliest tokens, each of the rows that want them. The head, which
/// reads more weights than any layer, is run once, for both kinds of rows.
fn decide<B: Backend>(
    ops: &B,
    model: &dyn Model<B>,
    batch: &Batch,
    states: &B::Act,
) -> Result<(Whole, Likeliest), DeviceError> {
    let (whole, likeliest) = (|row: &Row| row.want.logits, |row: &Row| row.want.top > 0);
    let deciding = batch.rows_where(|row| whole(row) || likeliest(row));
    if deciding.iter().all(|&row| !whole(&batch.rows()[row])) {
        let find = |rows: &[usize], most| {
            model.likeliest(ops, &ops.select(states, rows), rows.len(), most)
        };
        return Ok((Vec::new(), fetch_top(batch, find)?));
    }
    let all = model.logits(ops, &ops.select(states, &deciding));
    let place = |row: &usize| deciding.binary_search(row).expect("the row decides");
    let of = |rows: &[usize]| ops.select(&all, &rows.iter().map(place).collect::<Vec<_>>());
    let find = |rows: &[usize], most| ops.top(&of(rows), rows.len(), most);
    Ok((fetch(ops, batch, whole, of)?, fetch_top(batch, find)?))
}

/// The likeliest tokens of the rows that want some. The device looks for as many as the greediest
/// row asks for; a shorter list is the beginning of a longer one.
fn fetch_top(
    batch: &Batch,
    find: impl FnOnce(&[usize], usize) -> Result<Vec<Vec<Candidate>>, DeviceError>,
) -> Result<Likeliest, DeviceError> {
    let rows = batch.rows_where(|row| row.want.top > 0);
    let Some(most) = rows.iter().map(|&row| batch.rows()[row].want.top).max() else {
        return Ok(Vec::new());
    };
    let mut found = find(&rows, most)?;
    for (&row, candidates) in rows.iter().zip(&mut found) {
        candidates.truncate(batch.rows()[row].want.top);
    }
    Ok(rows.into_iter().zip(found).collect())
}

/// Reads what `make` yields for the rows that `pick` names, row by row.
fn fetch<B: Backend>(
    ops: &B,
    batch: &Batch,
    pick: impl Fn(&Row) -> bool,
    make: impl FnOnce(&[usize]) -> B::Act,
) -> Result<Vec<(usize, Vec<f32>)>, DeviceError> {
    let rows = batch.rows_where(pick);
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let flat = ops.read(&make(&rows))?;
    let width = flat.len() / rows.len();
    Ok(rows.into_iter().zip(flat.chunks_exact(width).map(<[f32]>::to_vec)).collect())
}
