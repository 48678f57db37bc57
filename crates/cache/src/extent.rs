//! How much a cache holds.

use lapidary_core::{Code, KvLayerSpec, Reach, Regime};

/// The size of a cache in sequences and tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// Sequences held at once.
    pub slots: usize,
    /// Tokens a sequence may grow to.
    pub context: u32,
    /// Most rows one step may bring to one slot.
    pub burst: u32,
}

impl Extent {
    /// The smallest burst the command line offers: room for a prompt chunk or a draft.
    pub const LEAST_BURST: u32 = 256;

    /// Cells that a layer of this reach keeps per slot: the ring law.
    pub fn cells(&self, reach: Reach) -> u32 {
        match reach {
            Reach::All => self.context,
            Reach::Window(window) => {
                window.saturating_add(self.burst.saturating_sub(1)).min(self.context)
            }
        }
    }
}

/// Values that share a norm in a rotated code.
const NORM_GROUP: usize = 256;

/// Bytes that a code needs for one head's `width` values.
pub fn code_bytes(code: Code, width: usize) -> u64 {
    let bytes = match code {
        Code::F32 => 4 * width,
        Code::F16 => 2 * width,
        Code::Rotated(bits) => {
            (width * usize::from(bits)).div_ceil(8) + 4 * width.div_ceil(NORM_GROUP)
        }
    };
    bytes as u64
}

/// Bytes of a cache, by the reach of its layers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KvBytes {
    /// Of layers that see the whole sequence.
    pub global: u64,
    /// Of layers that look back over a window.
    pub sliding: u64,
}

impl KvBytes {
    /// What one slot takes: `layers` are those that store entries of their own, each with the way
    /// it stores them.
    pub fn per_slot(extent: &Extent, layers: impl Iterator<Item = (KvLayerSpec, Regime)>) -> Self {
        let mut bytes = Self::default();
        for (spec, Regime { keys, values }) in layers {
            let cell = code_bytes(keys, spec.width) + code_bytes(values, spec.width);
            let layer = cell * spec.heads as u64 * u64::from(extent.cells(spec.reach));
            match spec.reach {
                Reach::All => bytes.global += layer,
                Reach::Window(_) => bytes.sliding += layer,
            }
        }
        bytes
    }

    /// Both together.
    pub fn total(self) -> u64 {
        self.global + self.sliding
    }
}
