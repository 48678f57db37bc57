//! Models from the Hugging Face hub: what a repository holds, which of its files are meant, how
//! they get here whole, and the cache that they lie in.
//!
//! The cache has the layout of Python's `huggingface_hub`, so that either finds what the other has
//! fetched. Knows no model and no format: a file is a name, a length and a checksum. Addresses,
//! the token and the cache's folder are handed in.
#![forbid(unsafe_code)]

mod address;
mod cache;
mod choose;
mod client;
mod error;
mod fetch;
mod name;
mod part;
mod pull;
mod repository;
mod stock;

pub use cache::Cache;
pub use choose::{Choice, Kind, label};
pub use client::{Options, Patience};
pub use error::{ChooseError, NameError, PullError};
pub use name::{HubName, RepoId};
pub use pull::{Event, Hub, Pulled};
pub use stock::{Removed, Stored, StoredFile};
