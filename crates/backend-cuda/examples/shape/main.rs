//! Speed of a model shape with random weights: `shape SHAPE.json CUBINS [quick | decode | products |
//! long | load | steady | soak]`.
//!
//! The shape file lists the tensors of a GGUF file; their content is made up here, so the numbers
//! say what the shape costs and nothing about any model's quality.

mod load;
mod made_up;
mod soak;

use std::path::PathBuf;
use std::time::Instant;

use lapidary_backend_cuda::{Cubins, Cuda, Method};
use lapidary_cache::Extent;
use lapidary_core::{
    Backend, Batch, BlockType, Code, KvCache, Matrix, Regime, SlotId, TokenId, Want,
};
use lapidary_model::{Model, NoHooks, Precision, Step};
use lapidary_testkit::{Loaded, Rng};

use crate::made_up::{MadeUp, pattern};

/// Slots of the bench, and rows a slot may bring at once.
const SLOTS: usize = 64;
const BURST: u32 = 2048;

fn main() {
    let args: Vec<_> = std::env::args().collect();
    let (shape, cubins) = (PathBuf::from(&args[1]), PathBuf::from(&args[2]));
    let mode = args.get(3).map_or("", String::as_str);
    let quick = mode == "quick";
    let start = Instant::now();
    let open = move || Cuda::open(0, Cubins::Folder(cubins.clone()));
    let cuda = open().unwrap_or_else(|e| panic!("{e}"));
    println!("{}; ready in {:.1} s", cuda.name(), start.elapsed().as_secs_f64());
    let source = MadeUp::read(&shape);
    match mode {
        "products" => return products(&cuda),
        "load" => return load::twice(&source, || open().unwrap_or_else(|e| panic!("{e}"))),
        "soak" => return soak::run(&cuda, source, open),
        _ => {}
    }
    let start = Instant::now();
    let long = mode == "long";
    let (extent, regime) = if long {
        let five = Code::Rotated(5);
        let regime = Regime { keys: five, values: five };
        (Extent { slots: 1, context: LONG + 256, burst: BURST }, regime)
    } else {
        (Extent { slots: SLOTS, context: 17_408, burst: BURST }, Regime::F16)
    };
    let mut model = Loaded::of(cuda, &source, Precision::AsStored, extent, regime);
    model.ops.finish().unwrap_or_else(|e| panic!("{e}"));
    let (free, all) = model.ops.memory();
    println!(
        "loaded in {:.1} s, {:.1} GiB in use",
        start.elapsed().as_secs_f64(),
        (all - free) as f64 / f64::from(1 << 30)
    );
    if mode == "steady" {
        return steady(&mut model);
    }
    if mode == "decode" {
        [1, 8, 32].into_iter().for_each(|batch| decode(&mut model, batch, 0, 100));
        return;
    }
    if long {
        return one_long_text(&mut model);
    }
    let rounds = if quick { 2 } else { 5 };
    for n in [512, 2048, 8192] {
        prefill(&mut model, n, rounds);
    }
    for batch in [1, 2, 4, 8, 16, 32, 64] {
        decode(&mut model, batch, 0, if quick { 40 } else { 100 });
    }
    for depth in [4096, 16_384] {
        decode(&mut model, 1, depth, if quick { 40 } else { 100 });
    }
}

/// Steps of a steady engine take no memory from the driver.
fn steady(model: &mut Loaded<Cuda>) {
    for batch in [1, 8, 32] {
        decode(model, batch, 0, 100);
        let before = model.ops.allocations();
        decode(model, batch, 0, 100);
        let taken = model.ops.allocations() - before;
        println!("x{batch}: {taken} allocations in 108 steps");
        assert_eq!(taken, 0, "a steady step takes no memory from the driver");
    }
}

/// Tokens of a long text.
const LONG: u32 = 131_072;

/// One text of [`LONG`] tokens in codes of five bits: speed, finite logits, memory that stays.
fn one_long_text(model: &mut Loaded<Cuda>) {
    let (all, sliding) = model.cache.bytes(&model.ops);
    println!("the cache takes {all} and {sliding} bytes");
    let start = Instant::now();
    let (before, _) = model.ops.memory();
    read(model, &tokens(LONG as usize, 3));
    let seconds = start.elapsed().as_secs_f64();
    println!("{LONG} tokens read in {seconds:.1} s: {:.0} tok/s", f64::from(LONG) / seconds);
    let (middle, _) = model.ops.memory();
    let mut times = Vec::new();
    for i in 0..64 {
        let start = Instant::now();
        let next = [TokenId(100 + i)];
        let batch = Batch::builder().chain(SlotId(0), LONG + i, &next, |_| Want::LOGITS);
        let out = model.run(&batch.expect("one span").build());
        assert!(out.logits[0].1.iter().all(|x| x.is_finite()), "logits of token {i}");
        model.commit(SlotId(0), 1);
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let (after, _) = model.ops.memory();
    println!(
        "decode at {LONG}: {:.1} tok/s (median, logits read back); free memory {} MiB before, {} \
         after the text, {} after the steps",
        1.0 / times[times.len() / 2],
        before >> 20,
        middle >> 20,
        after >> 20
    );
}

/// Products of the shape by every way that may serve them.
fn products(cuda: &Cuda) {
    let made_up = |block: BlockType, stack: usize, rows: usize, cols: usize| {
        let pattern = pattern(block);
        let len = block.row_bytes(cols).expect("whole blocks") * rows * stack;
        let bytes: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
        let stored = Matrix { block, stack, rows, cols, bytes: bytes.into() };
        cuda.matrix(stored).unwrap_or_else(|e| panic!("{e}"))
    };
    let mut rng = Rng(3);
    let mut act = |rows: usize, cols: usize| {
        cuda.upload(&(0..rows * cols).map(|_| rng.signed()).collect::<Vec<_>>(), cols)
    };
    let time = |what: &str, run: &dyn Fn()| {
        (0..3).for_each(|_| run());
        cuda.start_profile();
        (0..10).for_each(|_| run());
        let timings = cuda.take_profile();
        for t in timings.iter().take(3).filter(|t| t.milliseconds > 0.05) {
            let each = 1e3 * t.milliseconds / t.launches as f32;
            println!("  {what}: {each:.2} us x {} {}", t.launches / 10, t.kernel);
        }
    };
    for (block, rows, cols) in [
        (BlockType::Q4_K, 4096, 2816),
        (BlockType::Q4_K, 2816, 4096),
        (BlockType::Q5_0, 2816, 2112),
        (BlockType::Q8_0, 2816, 2112),
        (BlockType::Q6_K, 2048, 2816),
    ] {
        let w = made_up(block, 1, rows, cols);
        for m in [512, 2048] {
            let x = act(m, cols);
            for method in [Method::Many(32), Method::Many(48), Method::Many(64)] {
                let what = format!("{block} {rows}x{cols}, {m} rows, {method:?}");
                time(&what, &|| drop(cuda.linear_by(method, &x, &w)));
            }
        }
        for m in [1, 8, 16, 32, 64] {
            let x = act(m, cols);
            time(&format!("{block} {rows}x{cols}, {m} rows"), &|| drop(cuda.linear(&x, &w)));
        }
    }
    let router = cuda.vector(&vec![1.0; 128]);
    let up = made_up(BlockType::Q4_K, 128, 1408, 2816);
    for block in [BlockType::Q8_0, BlockType::Q5_0] {
        let down = made_up(block, 128, 2816, 704);
        for m in [1, 8, 16, 32, 64, 512, 2048] {
            let (x, logits) = (act(m, 2816), act(m, 128));
            let run = || {
                let routes = cuda.route(&logits, &router, 8);
                drop(cuda.experts(&x, &routes, &up, &down));
            };
            time(&format!("experts, {block}, {m} rows"), &run);
        }
    }
}

fn tokens(n: usize, seed: u64) -> Vec<TokenId> {
    let mut rng = Rng(seed);
    (0..n).map(|_| TokenId(rng.below(200_000) as u32)).collect()
}

/// One step whose rows that want logits get the likeliest token, picked on the device: what comes
/// back is eight bytes a row. Also the seconds that it took to ask for everything.
fn step(model: &mut Loaded<Cuda>, batch: &Batch) -> (Vec<TokenId>, f64) {
    let start = Instant::now();
    let Loaded { ops, model, cache, .. } = model;
    let kv = cache.plan(ops, batch).unwrap_or_else(|e| panic!("{e}"));
    let step = Step { batch, kv, soft: &[] };
    let states = model.forward(ops, cache, &step, &mut NoHooks);
    let rows = batch.rows_where(|row| row.want.logits);
    let logits = Model::logits(model, ops, &ops.select(&states, &rows));
    let issued = start.elapsed().as_secs_f64();
    let picks = ops.top(&logits, rows.len(), 1).unwrap_or_else(|e| panic!("{e}"));
    let picks = picks.iter().map(|row| row[0].token).collect();
    for span in batch.spans() {
        cache.commit(ops, span.slot, &(0..span.len).collect::<Vec<_>>());
    }
    (picks, issued)
}

/// Reads `tokens` into the first slot, a burst at a time.
fn read(model: &mut Loaded<Cuda>, tokens: &[TokenId]) {
    KvCache::<Cuda>::clear(&mut model.cache, SlotId(0));
    for (i, chunk) in tokens.chunks(BURST as usize).enumerate() {
        let base = i * BURST as usize;
        let last = |at| base + at + 1 == tokens.len();
        let want = |at| if last(at) { Want::LOGITS } else { Want::NOTHING };
        let batch = Batch::builder().chain(SlotId(0), base as u32, chunk, want);
        step(model, &batch.expect("one span").build());
    }
}

fn prefill(model: &mut Loaded<Cuda>, n: usize, rounds: usize) {
    let tokens = tokens(n, n as u64);
    let once = |model: &mut Loaded<Cuda>| {
        let start = Instant::now();
        read(model, &tokens);
        n as f64 / start.elapsed().as_secs_f64()
    };
    once(model);
    once(model);
    let mut speeds: Vec<f64> = (0..rounds).map(|_| once(model)).collect();
    speeds.sort_by(f64::total_cmp);
    println!(
        "prefill {n}: {:.0} tok/s ({:.0} to {:.0})",
        speeds[rounds / 2],
        speeds[0],
        speeds[rounds - 1]
    );
    if n <= BURST as usize {
        model.ops.start_profile();
        once(model);
        table(model);
    }
}

/// Steps of `batch` sequences, from `depth` on.
fn decode(model: &mut Loaded<Cuda>, batch: u32, depth: u32, steps: u32) {
    (0..batch).for_each(|slot| KvCache::<Cuda>::clear(&mut model.cache, SlotId(slot)));
    if depth > 0 {
        assert_eq!(batch, 1, "one sequence is read ahead");
        read(model, &tokens(depth as usize, 5));
    }
    let mut next: Vec<TokenId> = tokens(batch as usize, 9);
    let mut issued = Vec::new();
    let mut once = |model: &mut Loaded<Cuda>, i: u32| {
        let mut rows = Batch::builder();
        for (slot, token) in (0..).map(SlotId).zip(&next) {
            let one = rows.chain(slot, depth + i, &[*token], |_| Want::LOGITS);
            rows = one.expect("slots are distinct");
        }
        let (picks, seconds) = step(model, &rows.build());
        next = picks;
        seconds
    };
    (0..8).for_each(|i| {
        once(model, i);
    });
    let mut times: Vec<f64> = (8..8 + steps)
        .map(|i| {
            let start = Instant::now();
            issued.push(once(model, i));
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (mean, median) = (times.iter().sum::<f64>() / times.len() as f64, times[times.len() / 2]);
    println!(
        "decode x{batch} at {depth}: {:.1} tok/s; steps of {:.3} ms (median {:.3}, {:.3} to {:.3}), \
         issued in {:.3}",
        f64::from(batch) / mean,
        1e3 * mean,
        1e3 * median,
        1e3 * times[0],
        1e3 * times[times.len() - 1],
        1e3 * issued.iter().sum::<f64>() / issued.len() as f64
    );
    if depth == 0 && matches!(batch, 1 | 8 | 32) {
        model.ops.start_profile();
        once(model, 8 + steps);
        table(model);
    }
}

fn table(model: &Loaded<Cuda>) {
    let timings = model.ops.take_profile();
    let all: f32 = timings.iter().map(|t| t.milliseconds).sum();
    println!("  {all:.3} ms between events in all");
    for t in timings.iter().take(16) {
        let each = 1e3 * t.milliseconds / t.launches as f32;
        println!("  {:>9.3} ms {:>5} x {each:>8.2} us  {}", t.milliseconds, t.launches, t.kernel);
    }
}
