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

/// The largest context of at most `extent.context` tokens whose cache, all slots together, fits
/// into `budget` bytes; `None` if not even one of two tokens does.
pub fn largest_context(
    extent: &Extent,
    layers: &[(KvLayerSpec, Regime)],
    budget: u64,
) -> Option<u32> {
    let fits = |context: u32| {
        let extent = Extent { context, burst: extent.burst.min(context), ..*extent };
        let slot = KvBytes::per_slot(&extent, layers.iter().copied()).total();
        slot.saturating_mul(extent.slots as u64) <= budget
    };
    let (mut fitting, mut too_large) = (2, extent.context.saturating_add(1));
    if !fits(fitting) {
        return None;
    }
    while too_large - fitting > 1 {
        let middle = fitting + (too_large - fitting) / 2;
        if fits(middle) {
            fitting = middle;
        } else {
            too_large = middle;
        }
    }
    Some(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_context_fits_and_the_next_does_not() {
        let layer = |reach| KvLayerSpec { heads: 2, width: 256, reach, two_way: false };
        let layers = [
            (layer(Reach::All), Regime::F16),
            (layer(Reach::Window(128)), Regime { keys: Code::F16, values: Code::Rotated(4) }),
        ];
        let extent = Extent { slots: 3, context: 8192, burst: 64 };
        let need = |context| {
            let extent = Extent { context, burst: extent.burst.min(context), ..extent };
            3 * KvBytes::per_slot(&extent, layers.iter().copied()).total()
        };
        for context in [2, 3, 100, 191, 192, 5000, 8192] {
            assert_eq!(largest_context(&extent, &layers, need(context)), Some(context));
        }
        assert_eq!(largest_context(&extent, &layers, need(5001) - 1), Some(5000));
        assert_eq!(largest_context(&extent, &layers, u64::MAX), Some(8192));
        assert_eq!(largest_context(&extent, &layers, need(2) - 1), None);
    }
}
