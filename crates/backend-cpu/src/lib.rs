//! The CPU as a device.
//!
//! Two backends live here. [`Reference`] is the naive twin of every op: read it first, it says
//! what the ops mean. [`Cpu`] computes with the packed weights and vectorised kernels; whichever
//! instruction set it uses, and however many threads, its bits are the same, and docs/numerics.md
//! says which they are.
//!
//! The crate knows no model, request or file.
#![deny(clippy::undocumented_unsafe_blocks)]

pub mod reference;

mod act;
mod blocks;
mod cpu;
mod disjoint;
mod isa;
mod kernels;
mod kv;
mod lanes;
mod math;
mod pack;
mod pool;
mod rotated;

pub use act::Act;
pub use cpu::{Angles, Cpu, Routes};
pub use isa::Isa;
pub use kv::Store;
pub use pack::Weight;
pub use reference::Reference;
