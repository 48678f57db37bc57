//! The forward pass against values of an independent implementation.

use lapidary_backend_cpu::{Cpu, Reference};
use lapidary_cache::Extent;
use lapidary_core::{SlotId, Want};
use lapidary_model::Precision;
use lapidary_testkit::{Device, Goldens, Loaded, Taps, largest_difference, shared};

/// Single-precision sums in another order; the bar for the plain float path.
const TOLERANCE: f32 = 1e-3;
const SLOT: SlotId = SlotId(0);

/// Positions whose hidden states are stored with the random checkpoints.
const STORED: [usize; 6] = [0, 15, 16, 17, 47, 99];

/// A random checkpoint of 100 positions: logits everywhere, hidden states of six rows.
fn random_checkpoint<B: Device>(name: &str) {
    let Some(folder) = shared(&format!("fixtures/{name}")) else { return };
    let goldens = Goldens::read(&folder.join("golden.safetensors"));
    let tokens = goldens.tokens("ids");
    let extent = Extent { slots: 1, context: 256, burst: 128 };
    let mut loaded = Loaded::<B>::open(&folder, Precision::F32, extent);
    let mut taps = Taps { layers: Vec::new() };
    let out = loaded.read(SLOT, &tokens, tokens.len(), 0, Want::BOTH, &mut taps);

    let logits = goldens.rows("logits");
    assert_eq!(out.logits.len(), tokens.len());
    for (row, ours) in &out.logits {
        let off = largest_difference(ours, &logits[*row]);
        assert!(off <= TOLERANCE, "{name}: logits of position {row} are off by {off}");
    }
    let normed: Vec<f32> = out.hidden.iter().flat_map(|(_, x)| x).copied().collect();
    *taps.layers.last_mut().expect("there are layers") = normed;
    for (i, layer) in taps.layers.iter().enumerate() {
        compare_hidden(&goldens, &format!("hidden_{i}"), layer, &STORED, name);
    }
}

/// Compares the rows at the stored positions. `ours` holds all rows.
fn compare_hidden(goldens: &Goldens, tensor: &str, ours: &[f32], positions: &[usize], name: &str) {
    let stored = goldens.rows(tensor);
    assert_eq!(stored.len(), positions.len(), "{name}: rows of {tensor}");
    for (stored, &at) in stored.iter().zip(positions) {
        let width = stored.len();
        let off = largest_difference(&ours[at * width..(at + 1) * width], stored);
        assert!(off <= TOLERANCE, "{name}: {tensor} at position {at} is off by {off}");
    }
}

#[test]
fn dense_checkpoint_by_definition() {
    random_checkpoint::<Reference>("dense");
}

#[test]
fn dense_checkpoint_by_kernels() {
    random_checkpoint::<Cpu>("dense");
}

#[test]
fn per_layer_inputs_and_shared_entries_by_definition() {
    random_checkpoint::<Reference>("ple");
}

#[test]
fn per_layer_inputs_and_shared_entries_by_kernels() {
    random_checkpoint::<Cpu>("ple");
}

/// Pebble at every stored length, past the window of 128, read in chunks.
fn pebble<B: Device>(chunk: usize) {
    let Some(folder) = shared("pebble/hf") else { return };
    let Some(golden) = shared("pebble/golden/golden.safetensors") else { return };
    let goldens = Goldens::read(&golden);
    let extent = Extent { slots: 1, context: 1024, burst: 256 };
    let mut loaded = Loaded::<B>::open(&folder, Precision::F32, extent);
    for n in [1, 17, 127, 128, 129, 200, 300, 700] {
        let tokens = goldens.tokens(&format!("ids_{n}"));
        let mut taps = Taps { layers: Vec::new() };
        let out = loaded.read(SLOT, &tokens, chunk, 0, Want::BOTH, &mut taps);
        let stored = goldens.rows(&format!("logits_last_{n}"));
        let ours = &out.logits[n - stored.len()..];
        for ((row, ours), stored) in ours.iter().zip(&stored) {
            let off = largest_difference(ours, stored);
            assert!(off <= TOLERANCE, "length {n}: logits of position {row} are off by {off}");
        }
        let layers = loaded.config.layers.len();
        for i in 0..=layers {
            let rows = if i == layers {
                out.hidden.iter().flat_map(|(_, x)| x).copied().collect()
            } else {
                taps.layers
                    .iter()
                    .skip(i)
                    .step_by(layers + 1)
                    .flatten()
                    .copied()
                    .collect::<Vec<_>>()
            };
            let first = if n <= 17 { 0 } else { n - 4 };
            let positions: Vec<_> = (first..n).collect();
            let name = format!("length {n}");
            compare_hidden(&goldens, &format!("hidden_{n}_{i}"), &rows, &positions, &name);
        }
    }
}

#[test]
fn pebble_by_definition() {
    pebble::<Reference>(250);
}

#[test]
fn pebble_by_kernels() {
    pebble::<Cpu>(97);
}
