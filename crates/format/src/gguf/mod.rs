//! GGUF files, versions 2 and 3, little-endian.
//!
//! A file is a header (metadata, then the names, shapes, types and offsets of tensors) followed
//! by aligned tensor data. [`Gguf`] reads, [`Writer`] writes.

mod source;
mod split;

mod part;
mod values;

mod write;

mod cursor;
mod number;
mod types;

pub use source::Gguf;
pub use values::{GgufArray, GgufValue};
pub use write::{WriteError, Writer};

/// The first four bytes of a file.
const MAGIC: [u8; 4] = *b"GGUF";
/// The version that is written. Version 2 has the same layout.
const VERSION: u32 = 3;
/// The key that sets the alignment of tensor data, and its value where it is absent.
const ALIGNMENT_KEY: &str = "general.alignment";
const ALIGNMENT: u32 = 32;
/// The most dimensions a tensor can have.
const MOST_DIMS: usize = 4;
