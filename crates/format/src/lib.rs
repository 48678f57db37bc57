//! Model files: GGUF and Hugging Face folders as [`TensorSource`](lapidary_core::TensorSource)s,
//! a GGUF writer, and the codecs of all block types; and saved prefixes, which a model's cache left
//! behind.
//!
//! Every byte read here is foreign. Whatever a file says is checked once, when it is opened,
//! against the bytes that exist; after that nobody needs to check it again. Nothing here knows a
//! device or an architecture.
#![deny(unsafe_code)]

mod open;

pub mod gguf;

mod folder;
mod json;
mod safetensors;

pub mod codec;

mod digest;
mod saved;
mod saved_folder;

mod bytes;
mod error;
mod layout;
mod tensors;
mod wide;

#[doc(hidden)]
pub mod fuzz;

pub use digest::{digest, fingerprint};
pub use error::{Fault, OpenError};
pub use folder::Folder;
pub use gguf::Gguf;
pub use json::json;
pub use open::{Source, open};
pub use saved::{SavedError, SavedHead, decode_head, decode_section, encode_section, head_bytes};
pub use saved_folder::{Found, SavedFileError, SavedFolder};
pub use wide::wide;
