//! Runs a text through a watched model, chunk by chunk.

use std::collections::HashMap;

use lapidary_core::{Backend, Batch, KvCache, SlotId, TokenId, Want};
use lapidary_model::gemma::{Attention, FeedForward, Gemma, KvSource, Layer, Values};
use lapidary_model::{StepError, run};

use super::Imatrix;
use super::observe::{Observed, Watched};

/// Rows of a step.
const STEP: usize = 64;
const SLOT: SlotId = SlotId(0);

/// Runs the chunks that `imatrix` does not have yet, each from an empty cache, and adds what their
/// products were multiplied with. `after` sees the result after every chunk: a good moment to save
/// it. Stopped and continued, the result is the same.
///
/// The inputs of the head are counted as those of its matrix, which may be the embedding.
///
/// # Errors
/// The cache is too small for a chunk, or the device failed.
pub fn collect<B: Backend>(
    ops: &Observed<B>,
    model: &Gemma<Observed<B>>,
    cache: &mut dyn KvCache<Observed<B>>,
    chunks: &[Vec<TokenId>],
    imatrix: &mut Imatrix,
    after: &mut dyn FnMut(&Imatrix),
) -> Result<(), StepError> {
    let names = names(model);
    let head = if model.head.is_some() { "output.weight" } else { "token_embd.weight" };
    for chunk in chunks.iter().skip(imatrix.chunks as usize) {
        cache.clear(SLOT);
        ops.take();
        let mut last = vec![0.0; model.hidden];
        for (i, rows) in chunk.chunks(STEP).enumerate() {
            let first = (i * STEP) as u32;
            let batch = Batch::builder().chain(SLOT, first, rows, |_| Want::HIDDEN);
            let batch = batch.expect("a chunk's rows follow each other").build();
            let out = run(ops, model, cache, &batch)?;
            cache.commit(ops, SLOT, &(0..rows.len()).collect::<Vec<_>>());
            for (_, state) in &out.hidden {
                for (sum, x) in last.iter_mut().zip(state) {
                    *sum += f64::from(*x) * f64::from(*x);
                }
            }
        }
        for (id, sums) in ops.take() {
            if let Some(name) = names.get(&id) {
                imatrix.add(name, &sums.counts, &sums.squares);
            }
        }
        imatrix.add(head, &[chunk.len() as u32], &last);
        imatrix.chunks += 1;
        after(imatrix);
    }
    Ok(())
}

/// What GGUF files call each watched matrix.
fn names<B: Backend>(model: &Gemma<Observed<B>>) -> HashMap<usize, String> {
    let mut names = Names::default();
    if let Some(inputs) = &model.per_layer {
        names.put("per_layer_model_proj.weight".to_owned(), &inputs.projection);
    }
    for layer in &model.layers {
        names.layer(layer);
    }
    names.0
}

#[derive(Default)]
struct Names(HashMap<usize, String>);

impl Names {
    fn put<B: Backend>(&mut self, name: String, matrix: &Watched<B>) {
        self.0.insert(matrix.id, name);
    }

    fn layer<B: Backend>(&mut self, layer: &Layer<Observed<B>>) {
        let prefix = format!("blk.{}", layer.id.0);
        self.attention(&prefix, &layer.attention);
        self.feed_forward(&prefix, &layer.feed_forward);
        if let Some(branch) = &layer.per_layer {
            self.put(format!("{prefix}.inp_gate.weight"), &branch.gate);
            self.put(format!("{prefix}.proj.weight"), &branch.projection);
        }
    }

    fn attention<B: Backend>(&mut self, prefix: &str, attention: &Attention<Observed<B>>) {
        self.put(format!("{prefix}.attn_q.weight"), &attention.wq);
        self.put(format!("{prefix}.attn_output.weight"), &attention.wo);
        if let KvSource::Own { wk, values, .. } = &attention.source {
            self.put(format!("{prefix}.attn_k.weight"), wk);
            match values {
                Values::Normed(wv) | Values::Plain(wv) => {
                    self.put(format!("{prefix}.attn_v.weight"), wv);
                }
                Values::RawKeys => {}
            }
        }
    }

    fn feed_forward<B: Backend>(&mut self, prefix: &str, feed: &FeedForward<Observed<B>>) {
        self.put(format!("{prefix}.ffn_gate.weight"), &feed.gate);
        self.put(format!("{prefix}.ffn_up.weight"), &feed.up);
        self.put(format!("{prefix}.ffn_down.weight"), &feed.down);
        if let Some(experts) = &feed.experts {
            self.put(format!("{prefix}.ffn_gate_up_exps.weight"), &experts.gate_up);
            self.put(format!("{prefix}.ffn_down_exps.weight"), &experts.down);
        }
    }
}
