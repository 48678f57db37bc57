//! From published checkpoints to GGUF files, and from large files to small ones.
//!
//! A [`Draft`] says what a file will hold: read from a Hugging Face folder or from a GGUF file, in
//! GGUF's names and words. A [`Recipe`] says how it is stored: a [`Mix`] that chooses a type per
//! tensor, types of single tensors, importance. [`Draft::write`] streams one through the other: a
//! few megabytes at a time, all threads, and under another name until the file is whole.
//!
//! The mixes' types and the quantisers' bytes are llama.cpp's, so that a file can be compared with
//! one that others have made. Nothing here knows a device or a network.
#![forbid(unsafe_code)]

mod draft;
mod metadata;
mod mmproj;
mod sentencepiece;
mod vocabulary;

mod choice;
mod mix;
mod recipe;

pub mod imatrix;
pub mod quantise;
pub mod search;

mod error;
#[doc(hidden)]
pub mod fuzz;
mod unfinished;
mod verify;
mod workers;
mod write;

pub use choice::{Candidate, ModelFacts, choose, is_free};
pub use draft::Draft;
pub use error::ConvertError;
pub use imatrix::Imatrix;
pub use mix::Mix;
pub use recipe::{Again, Recipe};
pub use verify::{Compared, Finding, verify};
pub use workers::{NoThreads, Workers};
pub use write::{Progress, Written};
