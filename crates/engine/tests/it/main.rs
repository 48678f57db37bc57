//! The promises of the engine, one module each, against a model that costs nothing.

mod common;
mod refusals;
mod sampler;
mod simulation;
mod steps;
mod thread;
mod wishes;
