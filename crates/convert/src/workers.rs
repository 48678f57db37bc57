//! The threads that take part.

use std::fmt;

use rayon::prelude::*;

/// Threads that make pieces of a file. Results do not depend on how many there are.
pub struct Workers(rayon::ThreadPool);

/// The system would not start threads.
#[derive(Debug, thiserror::Error)]
#[error("{threads} threads cannot be started: {reason}")]
pub struct NoThreads {
    threads: usize,
    reason: rayon::ThreadPoolBuildError,
}

impl Workers {
    /// Starts threads; at least one.
    ///
    /// # Errors
    /// The system does not have that many.
    pub fn new(threads: usize) -> Result<Self, NoThreads> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
        pool.map(Self).map_err(|reason| NoThreads { threads, reason })
    }

    /// How many pieces are worth having at a time.
    pub(crate) fn batch(&self) -> usize {
        2 * self.0.current_num_threads()
    }

    /// Makes something of every item, in order.
    pub(crate) fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        make: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        self.0.install(|| items.par_iter().map(&make).collect())
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workers({})", self.0.current_num_threads())
    }
}
