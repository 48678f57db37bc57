//! Storing and attending, against the naive twin and against each row alone.

use lapidary_backend_cpu::Reference;
use lapidary_core::{Code, KvKernels, KvLayerSpec, LayerPlan, Reach, Regime, SlotId, View};

use super::{U, assert_bits, assert_within, random_rows, read};
use crate::Rng;

const SLOTS: usize = 3;
/// Entries of each slot: across blocks of 64 and stretches of 512 positions.
const ENTRIES: u32 = 600;

/// Keys and values of one layer on a device, and the queries to be asked.
struct Scene<B: KvKernels> {
    store: B::Store,
    spec: KvLayerSpec,
    cells: usize,
}

/// Heads of keys, query heads for each, width of a head.
const SHAPES: [(usize, usize, usize); 3] = [(2, 2, 32), (1, 4, 64), (1, 1, 256)];

fn spec(heads: usize, width: usize) -> KvLayerSpec {
    KvLayerSpec { heads, width, reach: Reach::All, two_way: false }
}

/// Entry `e` of slot `s` holds row `s · ENTRIES + e` of keys and values.
fn scene<B: KvKernels>(
    ops: &B,
    regime: Regime,
    spec: KvLayerSpec,
    cells: usize,
    keys: &[f32],
    values: &[f32],
) -> Scene<B> {
    let stored = ops.reserve(regime, spec, SLOTS, cells);
    let mut store = stored.unwrap_or_else(|e| panic!("{}: {e}", ops.name()));
    let cols = spec.heads * spec.width;
    let writes: Vec<_> =
        (0..SLOTS as u32).flat_map(|s| (0..ENTRIES).map(move |e| (SlotId(s), e))).collect();
    // In pieces, so that a ring keeps the last entries.
    for (i, writes) in writes.chunks(50).enumerate() {
        let rows = i * 50 * cols..(i * 50 + writes.len()) * cols;
        let views = writes.iter().map(|&(slot, e)| view(slot.0, e, e..e + 1)).collect();
        let plan = ops.upload_plan(LayerPlan { writes: writes.to_vec(), views });
        let (k, v) = (ops.upload(&keys[rows.clone()], cols), ops.upload(&values[rows], cols));
        ops.write(&mut store, &plan, &k, &v);
    }
    Scene { store, spec, cells }
}

fn view(slot: u32, pos: u32, run: std::ops::Range<u32>) -> View {
    View { slot: SlotId(slot), pos, run, lineage: Vec::new() }
}

/// Views of every kind: from the start, windows, two-way ones past the row itself, tree nodes.
/// A ring of `cells` holds only the last entries.
fn views(cells: u32, rng: &mut Rng) -> Vec<View> {
    let oldest = ENTRIES.saturating_sub(cells);
    let mut views = Vec::new();
    for slot in 0..SLOTS as u32 {
        for _ in 0..6 {
            let pos = oldest + rng.below((ENTRIES - oldest) as usize) as u32;
            let first = oldest + rng.below((pos - oldest + 1) as usize) as u32;
            views.push(view(slot, pos, oldest..pos + 1));
            views.push(view(slot, pos, first..pos + 1));
            views.push(view(slot, pos, first..ENTRIES.min(pos + 1 + rng.below(9) as u32)));
        }
        let base = ENTRIES - 12;
        let lineage = vec![base + 1, base + 4, base + 5, base + 11];
        let pos = base + lineage.len() as u32 - 1;
        views.push(View { slot: SlotId(slot), pos, run: oldest..base, lineage: lineage.clone() });
        views.push(View { slot: SlotId(slot), pos, run: base..base, lineage });
    }
    rng.shuffle(&mut views);
    views
}

impl<B: KvKernels> Scene<B> {
    fn ask(&self, ops: &B, views: &[View], q: &[f32]) -> Vec<f32> {
        let cols = q.len() / views.len();
        let plan = ops.upload_plan(LayerPlan { writes: Vec::new(), views: views.to_vec() });
        read(ops, &ops.attend(&self.store, &plan, &ops.upload(q, cols)))
    }
}

/// Attention within the bound of its roundings. A score of `w` products is off by `w U Σ|q k|` on
/// either side, which moves its exponential relatively by as much, and the exponential itself is
/// within two units of the last place; sums of `n` shares and of `n` values add `n` roundings
/// each. All of it is relative to the largest value.
///
/// # Panics
/// If an output is further off.
pub fn attention_agrees_with_its_definition<B: KvKernels>(ops: &B) {
    let mut rng = Rng(81);
    for regime in [Regime::F32, Regime::F16] {
        for (heads, group, width) in SHAPES {
            let (spec, cols) = (spec(heads, width), heads * width);
            let rows = SLOTS * ENTRIES as usize;
            let keys =
                random_rows(rows, cols, &mut rng).iter().map(|x| x / 8.0).collect::<Vec<_>>();
            let values: Vec<f32> = (0..rows * cols).map(|_| rng.signed()).collect();
            for cells in [ENTRIES as usize, 170] {
                let ours = scene(ops, regime, spec, cells, &keys, &values);
                let twin = scene(&Reference, regime, spec, cells, &keys, &values);
                let views = views(cells as u32, &mut rng);
                let q: Vec<f32> = (0..views.len() * cols * group).map(|_| rng.signed()).collect();
                let expected = twin.ask(&Reference, &views, &q);
                let key_size = keys.iter().fold(0.0_f32, |most, k| most.max(k.abs()));
                let bound = |i: usize| {
                    let head = &q[i / width * width..(i / width + 1) * width];
                    let products = head.iter().map(|q| q.abs()).sum::<f32>() * key_size;
                    let view = &views[i / (cols * group)];
                    let score = 2.0 * width as f32 * U * products;
                    2.0 * score + (4 * view.len() + 24) as f32 * U
                };
                let what = format!("{}: {heads}×{group}×{width}, {regime}", ops.name());
                assert_within(&ours.ask(ops, &views, &q), &expected, bound, &what);
            }
        }
    }
}

/// A row attends with the bits that it has alone, in every regime, and a copied entry is the entry.
///
/// # Panics
/// If it does not.
pub fn attention_keeps_the_row_law<B: KvKernels>(ops: &B) {
    let mut rng = Rng(82);
    let rotated = |bits| Regime { keys: Code::Rotated(bits), values: Code::Rotated(bits) };
    let mixed = Regime { keys: Code::F16, values: Code::Rotated(5) };
    for regime in [Regime::F32, Regime::F16, rotated(8), rotated(4), mixed] {
        for (heads, group, width) in SHAPES {
            let (spec, cols) = (spec(heads, width), heads * width);
            let rows = SLOTS * ENTRIES as usize;
            let keys =
                random_rows(rows, cols, &mut rng).iter().map(|x| x / 8.0).collect::<Vec<_>>();
            let values: Vec<f32> = (0..rows * cols).map(|_| rng.signed()).collect();
            let mut scene = scene(ops, regime, spec, 170, &keys, &values);
            let views = views(170, &mut rng);
            let row = cols * group;
            let q: Vec<f32> = (0..views.len() * row).map(|_| rng.signed()).collect();
            let together = scene.ask(ops, &views, &q);
            let one = |i: usize| scene.ask(ops, &views[i..=i], &q[i * row..(i + 1) * row]);
            let alone: Vec<f32> = (0..views.len()).flat_map(one).collect();
            let what = format!("{}: {heads}×{group}×{width}, {regime}", ops.name());
            assert_bits(&together, &alone, &what);
            copies_are_equal(ops, &mut scene, &q[..row], &what);
        }
    }
}

/// Entry `a` copied over entry `b` is seen at `b` as it is at `a`; its neighbours are unchanged.
fn copies_are_equal<B: KvKernels>(ops: &B, scene: &mut Scene<B>, q: &[f32], what: &str) {
    assert!(scene.cells >= 12 && scene.spec.width > 0, "the last twelve entries are there");
    let (from, to, slot) = (ENTRIES - 2, ENTRIES - 9, SlotId(1));
    let see = |scene: &Scene<B>, entry| scene.ask(ops, &[view(1, entry, entry..entry + 1)], q);
    let before = [see(scene, to - 1), see(scene, from), see(scene, to + 1)];
    ops.copy(&mut scene.store, slot, from, to);
    let after = [see(scene, to - 1), see(scene, to), see(scene, to + 1)];
    assert_bits(&after.concat(), &before.concat(), what);
}
