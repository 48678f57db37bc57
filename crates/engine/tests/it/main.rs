//! The promises of the engine, one module each, against a model that costs nothing.

mod common;
mod preemption;
mod prefixes;
mod refusals;
mod sampler;
mod samples;
mod simulation;
mod steps;
mod thread;
mod wishes;
