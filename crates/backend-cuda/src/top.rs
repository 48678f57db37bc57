//! The likeliest tokens of each row, picked on the device.

use lapidary_core::{Candidate, DeviceError, TokenId};

use crate::act::Act;
use crate::cuda::{Cuda, args};
use crate::device::Shape;
use crate::kernels::{ANY, Kernel};
use crate::pool::Buffer;

/// Most candidates that kernels/top.cu picks.
pub(crate) const MOST: usize = 1024;
/// Numbers that a block takes; its `PART`.
const PART: usize = 8192;

impl Cuda {
    /// The likeliest `k` candidates of each row, `k` at most [`MOST`]: eight bytes a candidate
    /// come back to the host.
    pub(crate) fn pick(&self, x: &Act, k: usize) -> Result<Vec<Vec<Candidate>>, DeviceError> {
        let k = k.min(x.cols());
        let (rows, cols) = (x.rows(), x.cols() as u32);
        let shape =
            |parts: usize| Shape { grid: (parts as u32, rows as u32), block: 256, shared: 0 };
        let room = |parts: usize| self.pool.get(8 * k * parts * rows);
        let mut parts = x.cols().div_ceil(PART);
        let mut kept: Buffer = room(parts);
        let args = args![x.data, kept, cols, k as u32];
        // SAFETY: a block per part of a row, with `k` places each.
        unsafe { self.launch(Kernel::TopFirst, ANY, shape(parts), &args) };
        while parts * k > PART {
            let (count, fewer) = (parts * k, (parts * k).div_ceil(PART));
            let next = room(fewer);
            let args = args![kept, next, count as u32, k as u32];
            // SAFETY: as above; `kept` has `count` keys a row.
            unsafe { self.launch(Kernel::TopNext, ANY, shape(fewer), &args) };
            (parts, kept) = (fewer, next);
        }
        let best = room(1);
        let args = args![kept, x.data, best, (parts * k) as u32, cols, k as u32];
        // SAFETY: as above; keys name columns of their row.
        unsafe { self.launch(Kernel::TopLast, ANY, shape(1), &args) };
        let words = best.read(2 * k * rows);
        if let Some(reason) = self.device.fault() {
            return Err(DeviceError(reason));
        }
        let candidate = |pair: &[f32]| {
            let token = TokenId(pair[0].to_bits());
            (token.0 != u32::MAX).then_some(Candidate { token, logit: pair[1] })
        };
        let row = |words: &[f32]| words.chunks_exact(2).map_while(candidate).collect();
        Ok(words.chunks_exact(2 * k).map(row).collect())
    }
}
