//! How much a cache holds.

use lapidary_core::{KvLayerSpec, Reach};

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

    /// Elements that one layer stores per slot, keys and values together.
    pub fn elements(&self, spec: &KvLayerSpec) -> u64 {
        2 * u64::from(self.cells(spec.reach)) * spec.heads as u64 * spec.width as u64
    }
}
