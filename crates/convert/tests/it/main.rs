//! What conversion promises.

mod conversion;
mod quantise;
