//! Where an engine's time goes: the phases of a step, and how waits, steps and rows spread.
//!
//! Nothing here reads a clock. A [`StepWatch`] is told what has just passed, and whoever drives the
//! engine has one that does.

use std::time::Duration;

use crate::RequestId;

/// A part of a step on the host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// Texts got slots, with what the cache or a shelf held of their beginnings.
    Admit,
    /// A drafter guessed.
    Draft,
    /// The batch was put together, and its rows were given their cells.
    Plan,
    /// The model ran, and what its rows want came back.
    Run,
    /// Tokens were chosen.
    Sample,
    /// The cache kept what stays and forgot the rest; prefixes were saved.
    Commit,
    /// Events were handed to whoever asked.
    Deliver,
}

impl Phase {
    /// All of them, in order of time.
    pub const ALL: [Self; 7] = [
        Self::Admit,
        Self::Draft,
        Self::Plan,
        Self::Run,
        Self::Sample,
        Self::Commit,
        Self::Deliver,
    ];

    /// One lower-case word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Draft => "draft",
            Self::Plan => "plan",
            Self::Run => "run",
            Self::Sample => "sample",
            Self::Commit => "commit",
            Self::Deliver => "deliver",
        }
    }
}

/// Looks on while a step is made. What is made does not depend on it.
pub trait StepWatch {
    /// A text of this request got a slot.
    fn admitted(&mut self, id: RequestId) {
        let _ = id;
    }

    /// What lies between this moment and the last one that was told was `phase`.
    fn passed(&mut self, phase: Phase) {
        let _ = phase;
    }
}

/// Does not look.
#[derive(Clone, Copy, Debug)]
pub struct NoWatch;

impl StepWatch for NoWatch {}

/// Where an engine's time went, since it was started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Seconds from a request's arrival to the slot that its first text got. Requests that ended
    /// before are not counted.
    pub queue: Histogram,
    /// Seconds that steps took, from admissions to commits.
    pub step: Histogram,
    /// Rows of steps.
    pub rows: Histogram,
    /// Time spent in each phase, in the order of [`Phase::ALL`].
    phases: [Duration; Phase::ALL.len()],
}

impl Default for Times {
    fn default() -> Self {
        Self {
            queue: Histogram::from(0.001),
            step: Histogram::from(0.000_1),
            rows: Histogram::from(1.0),
            phases: [Duration::ZERO; Phase::ALL.len()],
        }
    }
}

impl Times {
    /// The time spent in a phase.
    pub fn of(&self, phase: Phase) -> Duration {
        self.phases[phase as usize]
    }

    /// The time spent in all of them.
    pub fn total(&self) -> Duration {
        self.phases.iter().sum()
    }

    /// Another `time` of a phase has passed.
    pub(crate) fn add(&mut self, phase: Phase, time: Duration) {
        self.phases[phase as usize] += time;
    }
}

/// How values spread: how many lie below a first bound, below twice that, and so on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Histogram {
    first: f64,
    counts: [u64; Self::BUCKETS],
    sum: f64,
}

impl Histogram {
    /// So many bounds, and whatever lies beyond them.
    const BUCKETS: usize = 18;

    /// No values; those up to `first`, which is above zero, share the first bucket.
    const fn from(first: f64) -> Self {
        Self { first, counts: [0; Self::BUCKETS], sum: 0.0 }
    }

    /// Takes in a value.
    pub(crate) fn note(&mut self, value: f64) {
        let bounds = self.bounds();
        let place = bounds.into_iter().position(|bound| value <= bound);
        self.counts[place.unwrap_or(Self::BUCKETS - 1)] += 1;
        self.sum += value;
    }

    /// Highest value and number of values of each bucket, from the lowest up. The last bucket's
    /// bound is infinity.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + use<> {
        self.bounds().into_iter().zip(self.counts)
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    fn bounds(&self) -> [f64; Self::BUCKETS] {
        let mut bounds = [f64::INFINITY; Self::BUCKETS];
        let mut bound = self.first;
        for slot in &mut bounds[..Self::BUCKETS - 1] {
            *slot = bound;
            bound *= 2.0;
        }
        bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_lowest_bucket_that_holds_them() {
        let mut histogram = Histogram::from(1.0);
        [0.0, 1.0, 1.5, 2.0, 4.0, 1e9].into_iter().for_each(|value| histogram.note(value));
        let full: Vec<_> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(full, [(1.0, 2), (2.0, 2), (4.0, 1), (f64::INFINITY, 1)]);
        assert_eq!((histogram.count(), histogram.sum()), (6, 8.5 + 1e9));
    }
}
