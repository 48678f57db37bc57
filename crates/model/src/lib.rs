//! Architectures, each written once over [`Backend`](lapidary_core::Backend), and [`run()`], the whole
//! life of a batch.
//!
//! A layer is a function of rows. Prefill, batched decode, verify, tree verify, embed and
//! perplexity are shapes of the batch; nothing in this crate can tell them apart. It names no
//! device, no cache format, no request and no file.
#![forbid(unsafe_code)]

pub mod angles;
pub mod assistant;
pub mod config;
pub mod gemma;
mod load;
pub mod names;
mod run;
mod traffic;
pub mod vision;

#[doc(hidden)]
pub mod fuzz;

pub use load::{LoadError, Precision, load, load_assistant, load_vision};
pub use run::{Hooks, Model, NoHooks, Outputs, Step, StepError, run, run_step, run_with};
pub use traffic::{Traffic, attention_ops};
