//! Which cell holds which entry, and which entries a row may read.
//!
//! [`Cache`] is the one implementation of [`KvCache`](lapidary_core::KvCache). It counts entries
//! and never looks inside one: storing, attending and copying are the backend's
//! [`KvKernels`](lapidary_core::KvKernels).
//!
//! # The ring law
//!
//! A layer that looks back over a window keeps `window + burst - 1` cells per slot, where `burst`
//! is the most rows one step may bring to a slot. With fewer, storing the last row of a step
//! would evict a key that its first row still needs. The same inequality makes rejected drafts
//! harmless: what they overwrote was already out of every later row's sight.
#![forbid(unsafe_code)]

mod cache;
mod extent;
mod plan;
mod section;
mod spec;

pub use cache::{Cache, ReserveError};
pub use extent::{Extent, KvBytes, code_bytes, largest_context};
pub use spec::{KvSpec, KvSpecError, ROTATED_BITS};
