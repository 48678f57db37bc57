//! Loads a drafter that was trained for a target.

use std::borrow::Cow;

use lapidary_core::{Backend, Matrix, TensorSource, Unsupported};

use super::{LoadError, Loader, Precision};
use crate::assistant::Assistant;
use crate::config::{AssistantConfig, Config};

/// Loads a drafter for the target whose shape is given. `progress` is told how many tensor bytes
/// have been taken in so far, out of how many.
///
/// # Errors
/// [`LoadError`], naming the tensor or key; a drafter made for another target is one.
pub fn load_assistant<B: Backend>(
    ops: &B,
    source: &dyn TensorSource,
    target: &Config,
    precision: Precision,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Assistant<B>, LoadError> {
    let config = AssistantConfig::read(source.meta(), target)?;
    Loader::new(ops, source, precision, progress).assistant(&config, target.vocab)
}

impl<B: Backend> Loader<'_, B> {
    fn assistant(
        &mut self,
        AssistantConfig { decoder, backbone }: &AssistantConfig,
        vocab: usize,
    ) -> Result<Assistant<B>, LoadError> {
        let width = decoder.hidden;
        let mut ropes = Vec::new();
        let mut layers = Vec::with_capacity(decoder.layers.len());
        for (i, shape) in decoder.layers.iter().enumerate() {
            layers.push(self.layer(decoder, i, shape, &mut ropes)?);
        }
        let [pre_token, pre_hidden] =
            self.halves("nextn.pre_projection.weight", width, *backbone)?;
        Ok(Assistant {
            eps: decoder.eps,
            embedding: self.matrix("token_embd.weight", vocab, width)?,
            pre_token,
            pre_hidden,
            post: self.matrix("nextn.post_projection.weight", *backbone, width)?,
            ropes,
            layers,
            final_norm: self.norm("output_norm.weight", width, decoder)?,
        })
    }

    /// A matrix of `2 × cols` inputs as two of `cols`, left and right.
    fn halves(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<[B::Weight; 2], LoadError> {
        let (block, bytes) = self.stored(name, &[rows, 2 * cols])?;
        if !cols.is_multiple_of(block.block_len()) {
            let reason = format!("half a row of {} values is no whole number of blocks", 2 * cols);
            let name = self.names.translate(name);
            return Err(LoadError::Device { name, reason: Unsupported(reason) });
        }
        let row = bytes.len() / rows;
        let half = |first: usize| -> Vec<u8> {
            let rows = bytes.chunks_exact(row);
            rows.flat_map(|row| &row[first..first + row.len() / 2]).copied().collect()
        };
        let mut made = |first| {
            let bytes = Cow::<[u8]>::Owned(half(first));
            self.hand_over(name, Matrix { block, stack: 1, rows, cols, bytes })
        };
        Ok([made(0)?, made(row / 2)?])
    }
}
