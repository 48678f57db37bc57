//! Foreign bytes never cause a panic, and reading them never takes more memory than the file and
//! 64 MiB.
//!
//! A binary of its own, because it counts every allocation.

mod counting;
mod damage;
mod mutations;
#[path = "../promises/raw.rs"]
mod raw;
mod sizes;
