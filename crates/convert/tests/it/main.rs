//! What conversion promises.

mod answers;
mod conversion;
mod fuzz;
mod hostile;
mod imatrix;
mod known_rows;
#[cfg(feature = "slow")]
mod quality;
mod quantise;
mod verify;
