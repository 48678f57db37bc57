//! Pictures as people send them to pictures as a vision tower reads them.
//!
//! Read in this order: [`decode()`], [`Budget`], [`patches()`]. A file says of itself what it is, and is
//! held to [`Limits`] before anything of it is unpacked. Nothing here knows a model, a file or HTTP.
#![forbid(unsafe_code)]

mod budget;
mod cut;
mod decode;
mod error;
mod pixels;
mod resize;

#[doc(hidden)]
pub mod fuzz;

pub use budget::{BadBudget, Budget};
pub use cut::patches;
pub use decode::{Limits, decode};
pub use error::ImageError;
pub use pixels::Pixels;
pub use resize::resize;
