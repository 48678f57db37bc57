//! The residual stream after each layer, boiled down to a checksum per row, and the first place
//! where two runs differ.

use std::collections::BTreeMap;
use std::fmt;

use lapidary_core::{Backend, Batch, LayerId};
use lapidary_model::Hooks;
use thiserror::Error;

use super::Log;

/// One row after one layer. Displays as one line of a dump:
/// `step slot position layer checksum rms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerRow {
    /// Which step of the run, from 1.
    pub step: u64,
    /// The row's cache region.
    pub slot: u32,
    /// The row's depth in its sequence.
    pub pos: u32,
    /// Which layer, or the embedding before them all.
    pub layer: Option<u32>,
    /// FNV-1a over the bits of the row's values.
    pub checksum: u64,
    /// Root of the mean square of the row's values.
    pub rms: f32,
}

/// A line of a dump that cannot be read.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line} is no row of a layer dump (step slot position layer checksum rms): `{text}`")]
pub struct BadLayerRow {
    /// Which line, from 1.
    pub line: usize,
    /// What it says.
    pub text: String,
}

/// Where two runs first differ: the earliest position, and there the first layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// In the first run.
    pub left: LayerRow,
    /// In the second.
    pub right: LayerRow,
}

impl fmt::Display for LayerRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, slot, pos, checksum, rms, .. } = self;
        let layer = self.layer.map_or_else(|| "embedding".to_owned(), |layer| layer.to_string());
        write!(f, "{step} {slot} {pos} {layer} {checksum:016x} {rms:e}")
    }
}

impl LayerRow {
    /// Reads one line of a dump.
    fn parse(line: &str) -> Option<Self> {
        let parts: Vec<_> = line.split(' ').collect();
        let &[step, slot, pos, layer, checksum, rms] = parts.as_slice() else { return None };
        Some(Self {
            step: step.parse().ok()?,
            slot: slot.parse().ok()?,
            pos: pos.parse().ok()?,
            layer: if layer == "embedding" { None } else { Some(layer.parse().ok()?) },
            checksum: u64::from_str_radix(checksum, 16).ok()?,
            rms: rms.parse().ok()?,
        })
    }
}

/// Reads a dump.
///
/// # Errors
/// The first line that is no row.
pub fn read_layer_rows(text: &str) -> Result<Vec<LayerRow>, BadLayerRow> {
    let read = |(i, line): (usize, &str)| {
        let bad = || BadLayerRow { line: i + 1, text: line.chars().take(80).collect() };
        LayerRow::parse(line).ok_or_else(bad)
    };
    text.lines().enumerate().map(read).collect()
}

/// Compares what two runs computed for the same positions of the same slots. Where a run computed a
/// position more than once (guesses that came to nothing, a prompt read again), it agrees if any of
/// its rows does. Positions that only one run has are passed over.
pub fn first_difference(left: &[LayerRow], right: &[LayerRow]) -> Option<Difference> {
    let right = by_place(right);
    by_place(left).into_iter().find_map(|(place, left)| {
        let right = right.get(&place)?;
        let agree = left.iter().any(|l| right.iter().any(|r| l.checksum == r.checksum));
        let last = |rows: &[LayerRow]| rows.last().copied();
        (!agree).then_some(Difference { left: last(&left)?, right: last(right)? })
    })
}

/// Rows by position, slot and layer, in this order of precedence.
fn by_place(rows: &[LayerRow]) -> BTreeMap<(u32, u32, Option<u32>), Vec<LayerRow>> {
    let mut places = BTreeMap::<_, Vec<_>>::new();
    for row in rows {
        places.entry((row.pos, row.slot, row.layer)).or_default().push(*row);
    }
    places
}

/// Tells a log which layer is at work, and keeps a row per layer if the log wants that.
pub struct LayerWatch {
    log: Log,
    layers: u32,
    rows: Vec<(u32, u32)>,
}

impl LayerWatch {
    /// Watches a model of so many layers for a log.
    pub fn new(log: Log, layers: usize) -> Self {
        Self { log, layers: layers as u32, rows: Vec::new() }
    }

    fn keep<B: Backend>(&self, ops: &B, layer: Option<u32>, h: &B::Act) {
        if !self.log.wants_layers() {
            return;
        }
        // A device that has failed says so at the end of the step.
        let Ok(values) = ops.read(h) else { return };
        let width = values.len() / self.rows.len();
        let step = self.log.step();
        for (&(slot, pos), row) in self.rows.iter().zip(values.chunks_exact(width)) {
            let (checksum, rms) = (checksum(row), rms(row));
            self.log.layer_row(&LayerRow { step, slot, pos, layer, checksum, rms });
        }
    }
}

impl<B: Backend> Hooks<B> for LayerWatch {
    fn batch(&mut self, batch: &Batch) {
        self.log.begin_step();
        self.rows = batch.rows().iter().map(|row| (row.slot.0, row.pos)).collect();
    }

    fn embedded(&mut self, ops: &B, h: B::Act) -> B::Act {
        self.keep(ops, None, &h);
        self.log.enter((self.layers > 0).then_some(0));
        h
    }

    fn after_layer(&mut self, ops: &B, layer: LayerId, h: &B::Act) -> Option<B::Act> {
        self.keep(ops, Some(layer.0), h);
        let next = layer.0 + 1;
        self.log.enter((next < self.layers).then_some(next));
        None
    }
}

/// FNV-1a, 64 bits, over the values' bits in little-endian order.
fn checksum(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn rms(values: &[f32]) -> f32 {
    let sum: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
    (sum / values.len() as f64).sqrt() as f32
}
