//! Stores and attention: close to the CPU, and a row's bits its own.

use crate::common::{close, device, numbers, read, same_bits};
use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_backend_cuda::{Cuda, Store};
use lapidary_core::{
    Backend, Code, KvKernels, KvLayerSpec, LayerPlan, Reach, Regime, SlotId, View,
};
use lapidary_testkit::Rng;

const SLOTS: usize = 3;

struct Shape {
    heads: usize,
    group: usize,
    width: usize,
    cells: usize,
}

impl Shape {
    fn spec(&self) -> KvLayerSpec {
        KvLayerSpec { heads: self.heads, width: self.width, reach: Reach::All, two_way: false }
    }

    fn key_cols(&self) -> usize {
        self.heads * self.width
    }

    fn query_cols(&self) -> usize {
        self.group * self.key_cols()
    }
}

/// Entries `0..len` of every slot, written in pieces.
fn fill<B: KvKernels>(
    ops: &B,
    store: &mut B::Store,
    shape: &Shape,
    k: &[f32],
    v: &[f32],
    len: u32,
) {
    let cols = shape.key_cols();
    for slot in 0..SLOTS as u32 {
        let first = (slot * len) as usize * cols;
        for start in (0..len).step_by(37) {
            let piece = start..(start + 37).min(len);
            let writes: Vec<_> = piece.clone().map(|entry| (SlotId(slot), entry)).collect();
            let views =
                writes.iter().map(|(slot, entry)| chain(*slot, *entry, *entry, 1)).collect();
            let plan = ops.upload_plan(LayerPlan { writes, views });
            let part = first + piece.start as usize * cols..first + piece.end as usize * cols;
            let keys = ops.upload(&k[part.clone()], cols);
            ops.write(store, &plan, &keys, &ops.upload(&v[part], cols));
        }
    }
}

/// A row at `pos` that sees `start..pos + ahead`.
fn chain(slot: SlotId, start: u32, pos: u32, ahead: u32) -> View {
    View { slot, pos, run: start..pos + ahead, lineage: Vec::new() }
}

/// Chunks, windows, two-way blocks and trees over a slot of `len` entries, oldest visible `first`.
fn views(first: u32, len: u32) -> Vec<View> {
    let mut views = Vec::new();
    views.extend((len - 21..len).map(|pos| chain(SlotId(1), first, pos, 1)));
    views.extend((len - 9..len).map(|pos| chain(SlotId(0), (pos - 5).max(first), pos, 1)));
    views.extend((len - 8..len).map(|pos| chain(SlotId(2), first, pos, len - pos)));
    let tree = |pos, lineage| View { slot: SlotId(0), pos, run: first..len - 6, lineage };
    views.push(tree(len - 6, vec![len - 6]));
    views.push(tree(len - 5, vec![len - 6, len - 5]));
    views.push(tree(len - 5, vec![len - 6, len - 4]));
    views.push(tree(len - 4, vec![len - 6, len - 4, len - 1]));
    views.push(View { slot: SlotId(1), pos: len - 1, run: 0..0, lineage: vec![len - 2, len - 1] });
    views
}

fn plan<B: KvKernels>(ops: &B, views: Vec<View>) -> B::Plan {
    let writes = views.iter().map(|view| (view.slot, view.pos)).collect();
    ops.upload_plan(LayerPlan { writes, views })
}

fn run(cuda: &Cuda, shape: &Shape, regime: Regime, len: u32) {
    let cpu = Cpu::new(Isa::best(), 4).expect("the best instruction set is there");
    let mut rng = Rng(u64::from(len) + shape.width as u64);
    let what = format!("{regime} {} x {} x {}, {len}", shape.heads, shape.group, shape.width);
    let total = SLOTS * len as usize * shape.key_cols();
    let (k, v) = (numbers(&mut rng, total), numbers(&mut rng, total));
    let mut ours = cuda.reserve(regime, shape.spec(), SLOTS, shape.cells).expect("it fits");
    let mut theirs = cpu.reserve(regime, shape.spec(), SLOTS, shape.cells).expect("it fits");
    fill(cuda, &mut ours, shape, &k, &v, len);
    fill(&cpu, &mut theirs, shape, &k, &v, len);
    let first = len.saturating_sub(shape.cells as u32);
    cuda.copy(&mut ours, SlotId(1), len - 3, len - 7);
    cpu.copy(&mut theirs, SlotId(1), len - 3, len - 7);

    let (views, cols) = (views(first, len), shape.query_cols());
    let q = numbers(&mut rng, views.len() * cols);
    let together = {
        let plan = plan(cuda, views.clone());
        let q = cuda.upload(&q, cols);
        let fast = read(cuda, &cuda.attend(&ours, &plan, &q));
        // Means of numbers below one: scores of some units carry errors of width/8 roundings.
        let most = 4e-6 * (shape.width as f32).sqrt();
        close(&fast, &read(cuda, &cuda.attend_plain(&ours, &plan, &q)), most, &what);
        fast
    };
    let plan_there = plan(&cpu, views.clone());
    let there = read(&cpu, &cpu.attend(&theirs, &plan_there, &cpu.upload(&q, cols)));
    close(&together, &there, 4e-6 * (shape.width as f32).sqrt(), &what);

    for (i, view) in views.iter().enumerate() {
        let alone = plan(cuda, vec![view.clone()]);
        let row = i * cols..(i + 1) * cols;
        let alone = cuda.attend(&ours, &alone, &cuda.upload(&q[row.clone()], cols));
        same_bits(&read(cuda, &alone), &together[row], &format!("{what}: row {i} alone"));
    }
    cuda.finish().expect("the device works");
}

#[test]
fn attention_is_close_to_the_cpu_and_rows_are_alone() {
    let Some(cuda) = device() else { return };
    for (heads, group, width) in [
        (2, 1, 64),
        (1, 4, 128),
        (4, 2, 256),
        (2, 8, 512),
        (1, 3, 192),
        (1, 12, 64),
        (2, 2, 48),
        (1, 2, 16),
    ] {
        let shape = Shape { heads, group, width, cells: 700 };
        run(&cuda, &shape, Regime::F16, 40);
        run(&cuda, &shape, Regime::F16, 600);
        run(&cuda, &shape, Regime::F32, 300);
    }
}

fn rotated(keys: u8, values: u8) -> Regime {
    Regime { keys: Code::Rotated(keys), values: Code::Rotated(values) }
}

fn hybrid(values: u8) -> Regime {
    Regime { keys: Code::F16, values: Code::Rotated(values) }
}

#[test]
fn attention_over_codes_is_close_to_the_cpu_and_rows_are_alone() {
    let Some(cuda) = device() else { return };
    let regimes = [
        rotated(8, 8),
        rotated(6, 6),
        rotated(5, 5),
        rotated(4, 4),
        rotated(8, 4),
        rotated(5, 6),
        hybrid(8),
        hybrid(4),
    ];
    let shapes = [(2, 1, 64), (1, 4, 128), (4, 2, 256), (2, 8, 512), (2, 2, 32), (1, 16, 256)];
    for (i, (heads, group, width)) in shapes.into_iter().enumerate() {
        let shape = Shape { heads, group, width, cells: 700 };
        for (j, regime) in regimes.into_iter().enumerate() {
            run(&cuda, &shape, regime, if (i + j) % 2 == 0 { 40 } else { 400 });
        }
    }
    run(&cuda, &Shape { heads: 2, group: 2, width: 128, cells: 90 }, rotated(6, 5), 333);
}

/// One entry comes back as what is stored, rotated back: the codes and scales are the CPU's.
#[test]
fn stored_codes_are_those_of_the_cpu() {
    let Some(cuda) = device() else { return };
    let cpu = Cpu::new(Isa::best(), 4).expect("the best instruction set is there");
    let mut rng = Rng(17);
    for width in [32, 64, 128, 256, 512] {
        for bits in [4, 5, 6, 8] {
            let shape = Shape { heads: 2, group: 1, width, cells: 64 };
            let total = SLOTS * 40 * shape.key_cols();
            let mut v = numbers(&mut rng, total);
            v[..width].fill(0.0);
            v[width + 3] = f32::NAN;
            v[2 * width..3 * width].iter_mut().for_each(|x| *x *= 1e-30);
            v[4 * width..5 * width].iter_mut().for_each(|x| *x *= 1e18);
            let regime = rotated(bits, bits);
            let mut ours = cuda.reserve(regime, shape.spec(), SLOTS, shape.cells).expect("fits");
            let mut theirs = cpu.reserve(regime, shape.spec(), SLOTS, shape.cells).expect("fits");
            fill(&cuda, &mut ours, &shape, &v, &v, 40);
            fill(&cpu, &mut theirs, &shape, &v, &v, 40);
            let views: Vec<_> = (0..40).map(|e| chain(SlotId(0), e, e, 1)).collect();
            let q = vec![0.0; 40 * shape.query_cols()];
            let here = plan(&cuda, views.clone());
            let here = cuda.attend_plain(&ours, &here, &cuda.upload(&q, shape.query_cols()));
            let there = plan(&cpu, views);
            let there = cpu.attend(&theirs, &there, &cpu.upload(&q, shape.query_cols()));
            let what = format!("{regime}, heads of {width}");
            same_bits(&read(&cuda, &here), &read(&cpu, &there), &what);
        }
    }
}

/// Long texts have more partial results than are kept at once.
#[test]
fn many_rows_of_a_long_text_are_as_each_alone() {
    let Some(cuda) = device() else { return };
    let mut rng = Rng(23);
    let (shape, len) = (Shape { heads: 1, group: 2, width: 64, cells: 4200 }, 4100);
    let total = SLOTS * len as usize * shape.key_cols();
    let (k, v) = (numbers(&mut rng, total), numbers(&mut rng, total));
    for regime in [Regime::F16, Regime::F32, rotated(5, 4)] {
        let mut store = cuda.reserve(regime, shape.spec(), SLOTS, shape.cells).expect("it fits");
        fill(&cuda, &mut store, &shape, &k, &v, len);
        let views: Vec<_> = (len - 600..len).map(|pos| chain(SlotId(pos % 2), 0, pos, 1)).collect();
        let cols = shape.query_cols();
        let q = numbers(&mut rng, views.len() * cols);
        let all = plan(&cuda, views.clone());
        let together = read(&cuda, &cuda.attend(&store, &all, &cuda.upload(&q, cols)));
        for (i, view) in views.iter().enumerate().step_by(29) {
            let row = i * cols..(i + 1) * cols;
            let alone = plan(&cuda, vec![view.clone()]);
            let alone = cuda.attend(&store, &alone, &cuda.upload(&q[row.clone()], cols));
            same_bits(&read(&cuda, &alone), &together[row], &format!("{regime}: row {i}"));
        }
    }
}

#[test]
fn rings_wrap() {
    let Some(cuda) = device() else { return };
    let shape = Shape { heads: 2, group: 2, width: 64, cells: 90 };
    run(&cuda, &shape, Regime::F16, 333);
    run(&cuda, &shape, Regime::F32, 129);
}

#[test]
fn unknown_regimes_are_refused() {
    let Some(cuda) = device() else { return };
    let regime = Regime { keys: Code::F16, values: Code::F32 };
    let shape = Shape { heads: 1, group: 1, width: 64, cells: 8 };
    let refused = cuda.reserve(regime, shape.spec(), 1, 8).err().expect("it is refused");
    assert!(refused.0.contains("both sides"), "{refused}");
}

/// Entries that were taken out and put into another slot, and those that were copied there, are what
/// the slot held: rows that look at them get the same bits.
#[test]
fn entries_travel_as_they_are_stored() {
    let Some(cuda) = device() else { return };
    let transport = cuda.transport().expect("CUDA has a way out");
    let mut rng = Rng(31);
    let (len, cells) = (130, 90);
    for regime in [Regime::F16, Regime::F32, rotated(6, 5), hybrid(4)] {
        let shape = Shape { heads: 2, group: 2, width: 128, cells };
        let total = SLOTS * len as usize * shape.key_cols();
        let (k, v) = (numbers(&mut rng, total), numbers(&mut rng, total));
        let mut store = cuda.reserve(regime, shape.spec(), SLOTS, cells).expect("it fits");
        fill(&cuda, &mut store, &shape, &k, &v, len);
        let entries = len - cells as u32..len;
        let q = numbers(&mut rng, shape.query_cols());
        let look = |store: &Store, slot| {
            let view = chain(SlotId(slot), entries.start, len - 1, 1);
            let plan = plan(&cuda, vec![view]);
            read(&cuda, &cuda.attend(store, &plan, &cuda.upload(&q, shape.query_cols())))
        };
        let held = look(&store, 1);
        let bytes = transport.export(&store, SlotId(1), entries.clone());
        assert_eq!(bytes.len(), cells * transport.entry_bytes(&store), "{regime}");
        let (early, late) = bytes.split_at(33 * transport.entry_bytes(&store));
        transport.import(&mut store, SlotId(0), entries.start, early);
        transport.import(&mut store, SlotId(0), entries.start + 33, late);
        same_bits(&look(&store, 0), &held, &format!("{regime}, there and back"));
        assert_eq!(transport.export(&store, SlotId(0), entries.clone()), bytes, "{regime}");
        assert_ne!(look(&store, 2), held, "the third slot holds something else");
        transport.fork(&mut store, SlotId(1), SlotId(2), entries.clone());
        same_bits(&look(&store, 2), &held, &format!("{regime}, copied"));
    }
}
