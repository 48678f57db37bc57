//! What Gemma 3's files leave unsaid.

/// Base frequency of sliding layers.
pub(super) const SLIDING_THETA: f64 = 10_000.0;
/// One layer in this many is global.
const PERIOD: usize = 6;
/// Layers of the 27B, the one variant whose attention is scaled by another width than its heads'.
const LAYERS_27B: usize = 62;

pub(super) fn is_global(layer: usize) -> bool {
    (layer + 1).is_multiple_of(PERIOD)
}

/// One over the root of the head width; in the 27B, of the stream's width per head.
pub(super) fn attention_scale(layers: usize, hidden: usize, heads: usize, width: usize) -> f64 {
    let width = if layers == LAYERS_27B { hidden / heads.max(1) } else { width };
    (width.max(1) as f64).sqrt().recip()
}

/// Zero stands for no bound.
pub(super) fn softcap(cap: f64) -> Option<f32> {
    (cap > 0.0).then_some(cap as f32)
}
