//! An OpenAI-compatible HTTP server over a running engine.
//!
//! ```text
//! wire (serde types) ─► a route's module ─► Job ─► generate ─► engine
//!                                                     │
//!          JSON, or SSE in the route's dialect ◄─ Delta ◄─ Voice (taken apart, cut at stops)
//! ```
//!
//! A field that has an effect is honoured or refused by name, before anything runs; once an answer
//! has begun it is never taken back. Dropping a response cancels its request. Nothing here knows a
//! device, a file of weights or a cache; time and chance are handed in.
#![forbid(unsafe_code)]

mod world;

mod app;
mod host;
mod model;
mod serve;
mod tls;

mod access;
mod body;
mod error;
mod metrics;
mod record;
mod wire;

mod chat;
mod completions;
mod constraint;
mod embeddings;
mod images;
mod info;
mod likelihood;
mod messages;
mod openapi;
mod page;
mod prompt;
mod responses;
mod responses_stream;
mod sampling;
mod tokens;
mod tools;

mod generate;
mod sse;
mod voice;

#[doc(hidden)]
pub mod fuzz;

pub use access::{BadKeyFile, Keys};
pub use app::{App, Settings};
pub use error::ApiError;
pub use host::host;
pub use images::Images;
pub use model::{Defaults, Model};
pub use openapi::openapi;
pub use serve::serve;
pub use tls::{BadTls, Tls};
pub use world::World;
