//! How many megabytes of BF16 a thread turns into blocks per second.

use std::time::Instant;

use lapidary_convert::quantise::{is_written, quantise};
use lapidary_core::BlockType;
use lapidary_format::codec;

const COLS: usize = 4096;
const ROWS: usize = 256;

fn main() {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let numbers: Vec<f32> = (0..ROWS * COLS).map(|_| next() + next() + next()).collect();
    let importance: Vec<f32> = (0..COLS).map(|_| 1.0 + next()).collect();
    let bf16 = codec::encode(BlockType::BF16, &numbers).expect("small numbers fit");
    println!("{:<8} {:>12} {:>16}", "type", "MB/s", "with importance");
    for block in BlockType::ALL.into_iter().filter(|block| is_written(*block)) {
        let speed = |weights: Option<&[f32]>| {
            let start = Instant::now();
            let mut times = 0_u32;
            while start.elapsed().as_secs_f64() < 0.5 {
                let mut decoded = vec![0.0; numbers.len()];
                codec::decode(BlockType::BF16, &bf16, &mut decoded).expect("it was encoded");
                let made = quantise(block, COLS, &decoded, weights);
                std::hint::black_box(made.expect("numbers are small"));
                times += 1;
            }
            f64::from(times) * bf16.len() as f64 / 1e6 / start.elapsed().as_secs_f64()
        };
        println!("{:<8} {:>12.1} {:>16.1}", block.to_string(), speed(None), speed(Some(&importance)));
    }
}
