//! What the crate promises, one file per promise.

mod contract;
mod raw;
mod shared;

mod corpus;
mod folder;
mod hostile_gguf;
mod known_bytes;
mod large_vocabulary;
mod open;
mod real_models;
mod roundtrip;
mod saved;
mod saved_folder;
mod split;
mod truncation;
