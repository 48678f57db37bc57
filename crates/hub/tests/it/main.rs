//! The hub's protocol against a server that imitates it, faults included.

mod cache;
mod choosing;
mod faults;
mod refusals;
mod server;
