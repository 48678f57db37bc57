//! The shapes of requests and answers: what serde reads and writes, and nothing else.

pub(crate) mod chat;
pub(crate) mod common;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod info;
pub(crate) mod messages;
pub(crate) mod responses;
pub(crate) mod tokens;
