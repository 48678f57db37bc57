//! Where the time of a step goes: events around every kernel, when asked for.

use std::collections::BTreeMap;

use crate::device::{Device, Moment};
use crate::kernels::Kernel;

/// The time that one kernel took, all launches together.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// The kernel's name, with its format's number where it has one.
    pub kernel: String,
    /// Number of launches.
    pub launches: usize,
    /// Milliseconds from before each launch to after it, added up.
    pub milliseconds: f32,
}

/// Moments around launches.
#[derive(Default)]
pub(crate) struct Profile {
    launches: Vec<(Kernel, u32, Moment, Moment)>,
}

impl Profile {
    pub(crate) fn push(&mut self, kernel: Kernel, format: u32, around: (Moment, Moment)) {
        self.launches.push((kernel, format, around.0, around.1));
    }

    /// Sums per kernel, the longest first. Everything launched has run.
    pub(crate) fn timings(self, device: &Device) -> Vec<Timing> {
        let mut sums: BTreeMap<String, (usize, f32)> = BTreeMap::new();
        for (kernel, format, from, to) in self.launches {
            let name = format!("{} {format}", kernel.name());
            let sum = sums.entry(name).or_default();
            sum.0 += 1;
            sum.1 += device.between(from, to).unwrap_or(0.0);
        }
        let timing = |(kernel, (launches, milliseconds))| Timing { kernel, launches, milliseconds };
        let mut timings: Vec<_> = sums.into_iter().map(timing).collect();
        timings.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        timings
    }
}
