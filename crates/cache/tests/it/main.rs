//! Promises of the cache, kept against an oracle that knows no rings.

mod history;
mod ledger;
mod plan;
mod ring_law;
mod sections;
mod truncate;
