//! How much each input of each projection matters: the mean of its squares over a text.
//!
//! The error of a matrix product is the error of the weights times the inputs, so a weight whose
//! input is large must be kept more exactly. [`Imatrix`] is the public GGUF form that llama.cpp
//! writes and reads too; [`collect()`] makes it by running a model on a device that is
//! [`Observed`].

mod collect;
mod file;
mod observe;

use std::collections::BTreeMap;

pub use collect::collect;
pub use file::ImatrixError;
pub use observe::{Observed, Routes, Watched};

/// Importance of the inputs of a model's matrices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// The texts it was made from.
    pub datasets: Vec<String>,
    /// Rows of a chunk.
    pub chunk_size: u32,
    /// Chunks so far.
    pub chunks: u32,
    entries: BTreeMap<String, Entry>,
}

/// Sums over the rows that a matrix, or each matrix of a stack, was multiplied with.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// Rows, one count per matrix.
    counts: Vec<f32>,
    /// Squares of the inputs, `cols` numbers per matrix.
    sums: Vec<f32>,
}

/// What a text has told about a matrix or a stack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Coverage {
    /// Matrices.
    pub stack: usize,
    /// Those that have seen a row.
    pub seen: usize,
    /// Rows that the least used of them has seen.
    pub least: u64,
}

impl Imatrix {
    /// Nothing yet, from a text of this name in chunks of this many rows.
    pub fn new(dataset: String, chunk_size: u32) -> Self {
        Self { datasets: vec![dataset], chunk_size, ..Self::default() }
    }

    /// Names of the matrices it knows, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// How much each column of a matrix, or of each matrix of a stack, matters. A matrix that has
    /// seen nothing has all columns alike.
    ///
    /// Gate and up projections of experts have the same inputs, whether a file keeps them together
    /// or apart.
    pub fn weights(&self, name: &str) -> Option<Vec<f32>> {
        let Entry { counts, sums } = self.entry(name)?;
        let cols = sums.len() / counts.len();
        let weight = |(i, sum): (usize, &f32)| match counts[i / cols] {
            0.0 => 1.0,
            count => sum / count,
        };
        Some(sums.iter().enumerate().map(weight).collect())
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        const ALIKE: [&str; 3] = ["ffn_gate_up_exps.", "ffn_gate_exps.", "ffn_up_exps."];
        let alike = || {
            let own = ALIKE.iter().find(|part| name.contains(**part))?;
            ALIKE.iter().find_map(|other| self.entries.get(&name.replace(own, other)))
        };
        self.entries.get(name).or_else(alike)
    }

    /// What a text has told about a matrix.
    pub fn coverage(&self, name: &str) -> Option<Coverage> {
        let counts = &self.entry(name)?.counts;
        Some(Coverage {
            stack: counts.len(),
            seen: counts.iter().filter(|&&count| count > 0.0).count(),
            least: counts.iter().fold(f32::INFINITY, |least, &count| least.min(count)) as u64,
        })
    }

    /// Adds the rows of one chunk: `counts` and `sums` as in a file, sums taken exactly.
    pub(crate) fn add(&mut self, name: &str, counts: &[u32], sums: &[f64]) {
        let entry = self.entries.entry(name.to_owned()).or_insert_with(|| Entry {
            counts: vec![0.0; counts.len()],
            sums: vec![0.0; sums.len()],
        });
        assert_eq!(entry.sums.len(), sums.len(), "a matrix keeps its shape");
        for (all, own) in entry.counts.iter_mut().zip(counts) {
            *all += *own as f32;
        }
        for (all, own) in entry.sums.iter_mut().zip(sums) {
            *all += *own as f32;
        }
    }
}
