//! From published checkpoints to GGUF files, and from large files to small ones.
#![forbid(unsafe_code)]

pub mod quantise;
