//! What this machine can do at most, measured with the pool and instructions of the device.

use std::hint::black_box;
use std::time::Instant;

use lapidary_core::{Backend, BlockType, Matrix};

use crate::act::Act;
use crate::cpu::Cpu;

/// Bytes of the buffer that is read: far more than any cache holds.
const READ: usize = 256 << 20;
/// How often each rate is taken; the best counts.
const TRIES: usize = 5;

impl Cpu {
    /// Bytes per second that all threads together read from memory.
    pub fn read_rate(&self) -> f64 {
        let buffer = vec![1_u64; READ / 8];
        let piece = buffer.len() / (16 * self.pool.threads());
        best(|| {
            self.pool.run(buffer.len() / piece, &|i| {
                let part = &buffer[i * piece..(i + 1) * piece];
                // Eight sums, so that additions do not wait for each other.
                let mut sums = [0_u64; 8];
                for chunk in part.as_chunks::<8>().0 {
                    sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
                }
                black_box(sums);
            });
            READ as f64
        })
    }

    /// Multiplications and additions per second of the widest quantised product: a matrix that
    /// fits the cache, for many rows.
    pub fn multiply_rate(&self) -> f64 {
        const SIZE: usize = 512;
        let row_bytes = BlockType::Q8_0.row_bytes(SIZE).expect("whole blocks");
        let bytes = vec![1; SIZE * row_bytes].into();
        let stored = Matrix { block: BlockType::Q8_0, stack: 1, rows: SIZE, cols: SIZE, bytes };
        let weight = self.matrix(stored).expect("Q8_0 has kernels");
        let x = Act::new(SIZE, (0..SIZE * SIZE).map(|i| (i % 13) as f32 - 6.0).collect());
        self.codes(&x);
        best(|| {
            for _ in 0..4 {
                black_box(self.linear(&x, &weight));
            }
            (4 * 2 * SIZE * SIZE * SIZE) as f64
        })
    }
}

/// The best rate of several tries, in units per second.
fn best(mut work: impl FnMut() -> f64) -> f64 {
    let rate = |_| {
        let began = Instant::now();
        let done = work();
        done / began.elapsed().as_secs_f64()
    };
    (0..TRIES).map(rate).fold(0.0, f64::max)
}
