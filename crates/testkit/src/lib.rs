//! What tests of several crates share: fixtures, golden values, and a model ready to run.
//!
//! Nothing here is part of the product.

mod answers;
mod fetched;
mod goldens;
mod loaded;
mod rng;
mod shared;

pub use answers::{Answer, LONGEST, PEBBLE_END, answers};
pub use fetched::fetched;
pub use goldens::{Goldens, largest_difference};
pub use loaded::{Device, Loaded, Taps};
pub use rng::Rng;
pub use shared::shared;
