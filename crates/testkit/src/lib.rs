//! What tests of several crates share: fixtures, golden values, and a model ready to run.
//!
//! Nothing here is part of the product.
#![forbid(unsafe_code)]

mod answers;
mod checkpoint;
pub mod conformance;
mod fetched;
mod goldens;
mod loaded;
mod pictures;
mod rng;
pub mod row_law;
mod scripted;
mod shared;
mod stored;
mod toy;

pub use answers::{LONGEST, PEBBLE_END, answers};
pub use checkpoint::Checkpoint;
pub use fetched::fetched;
pub use goldens::{Goldens, largest_difference};
pub use loaded::{Device, Loaded, Taps, argmax};
pub use pictures::{PictureCase, PictureTurn, picture_cases, tower};
pub use rng::Rng;
pub use scripted::{PANIC, Script, pebble_words};
pub use shared::{repository, shared};
pub use stored::random_weights;
pub use toy::{GOLDEN_TOY, TOY_HIDDEN, TOY_VOCABULARY, TOY_WINDOW, toy, toy_bytes};
