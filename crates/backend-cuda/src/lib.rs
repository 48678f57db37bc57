//! An NVIDIA GPU as a device.
//!
//! The matmul law of the CPU (docs/numerics.md) holds here bit for bit, whichever kernel serves a
//! shape. Kernels are CUDA C++ files under `kernels/`, one operation each, compiled by NVRTC for
//! the device at hand when they are first needed; neither CUDA nor a GPU is needed to build.
//!
//! Start at [`Cuda::open`]. The crate knows no model, request or file.
#![deny(clippy::undocumented_unsafe_blocks)]

mod act;
mod compile;
mod cuda;
mod device;
mod experts;
mod kernels;
mod kv;
mod matmul;
mod open;
mod pool;
mod profile;
mod queue;
mod top;
mod transport;
mod weight;

pub use act::Act;
pub use compile::Cubins;
pub use cuda::{Angles, Cuda, Vector};
pub use experts::Routes;
pub use kv::{Plan, Store};
pub use matmul::Method;
pub use open::OpenError;
pub use profile::Timing;
pub use weight::Weight;
