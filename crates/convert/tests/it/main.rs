//! What conversion promises.

mod quantise;
