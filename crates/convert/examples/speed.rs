//! How many megabytes of BF16 a thread turns into blocks per second of its own time.

use std::time::Instant;

use lapidary_convert::quantise::{is_written, quantise};
use lapidary_core::BlockType;

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
    let bf16: Vec<u16> = numbers.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
    println!("{:<8} {:>12} {:>16}", "type", "MB/s", "with importance");
    for block in BlockType::ALL.into_iter().filter(|block| is_written(*block)) {
        let speed = |weights: Option<&[f32]>| {
            let (start, began) = (Instant::now(), own_seconds());
            let mut times = 0_u32;
            while start.elapsed().as_secs_f64() < 1.0 {
                let decoded: Vec<f32> =
                    bf16.iter().map(|&x| f32::from_bits(u32::from(x) << 16)).collect();
                let made = quantise(block, COLS, &decoded, weights);
                std::hint::black_box(made.expect("numbers are small"));
                times += 1;
            }
            let seconds = match (began, own_seconds()) {
                (Some(began), Some(ended)) => ended - began,
                _ => start.elapsed().as_secs_f64(),
            };
            f64::from(times) * (2 * bf16.len()) as f64 / 1e6 / seconds
        };
        println!(
            "{:<8} {:>12.1} {:>16.1}",
            block.to_string(),
            speed(None),
            speed(Some(&importance))
        );
    }
}

/// Seconds that this thread has run, where the system tells.
fn own_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}
