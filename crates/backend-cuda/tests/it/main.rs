//! The CUDA device against the CPU: ops, matrices, attention, whole models. Without a device every
//! test says that it was skipped, and why.

mod attention;
mod common;
mod matmul;
mod models;
mod ops;
mod promises;
mod schedules;
