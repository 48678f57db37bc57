//! Watching a model at work without changing what it computes: time per operation, checksums per
//! layer, and a guard that names the operation whose result first goes astray.
//!
//! ```text
//! Traced<B> ──every op──► Log ──► Chrome trace, table of totals
//! LayerWatch ─every layer─┘ └──► checksum per row and layer ──► first_difference of two runs
//! ```
//!
//! [`Traced`] is a backend like any other, so the model, the cache and the engine run over it
//! unchanged. Whoever does not want it does not construct it, and pays nothing.

mod chrome;
mod layers;
mod log;
mod totals;
mod traced;

pub use layers::{
    BadLayerRow, Difference, LayerRow, LayerWatch, first_difference, read_layer_rows,
};
pub use log::{Log, Sinks};
pub use totals::{Total, Totals};
pub use traced::{Category, Traced};
