//! What a server takes from the world besides requests: time and chance. Handed in as values, so
//! that a test's answers are the same bytes every time.

use std::time::Duration;

/// Time and chance.
pub struct World {
    /// Seconds since 1970.
    pub unix: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Time since some fixed moment; never goes back.
    pub elapsed: Box<dyn Fn() -> Duration + Send + Sync>,
    /// A number that nobody can guess.
    pub random: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl World {
    /// A fresh id such as `chatcmpl-0123456789abcdef`.
    pub(crate) fn id(&self, prefix: &str) -> String {
        format!("{prefix}{:016x}", (self.random)())
    }
}
