//! Launches that wait to be issued. Equal runs of launches, such as those of one decode step after
//! another, are issued as one graph from the third time on: one call of the driver instead of
//! hundreds.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};

use cudarc::driver::sys;

use crate::device::{Arg, Function, Shape};

/// Most arguments of a kernel.
const MOST_ARGS: usize = 24;
/// Launches that are issued together: enough to make a graph worth it, few enough that the device
/// does not wait for the host.
const TOGETHER: usize = 128;
/// Launches that are issued together first, while the device has nothing to do.
const AT_FIRST: usize = 16;
/// Runs shorter than this are not worth a graph.
const WORTH_A_GRAPH: usize = 4;
/// Most graphs that are kept.
const MOST_GRAPHS: usize = 256;

/// A kernel with its arguments.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Launch {
    pub(crate) function: Function,
    pub(crate) shape: Shape,
    count: usize,
    /// Each in the low bytes of its place.
    values: [u64; MOST_ARGS],
}

impl Launch {
    pub(crate) fn new(function: Function, shape: Shape, args: &[Arg]) -> Self {
        let mut values = [0; MOST_ARGS];
        for (value, arg) in values.iter_mut().zip(args) {
            *value = match *arg {
                Arg::Address(v) | Arg::Long(v) => v,
                Arg::Int(v) => u64::from(v),
                Arg::Float(v) => u64::from(v.to_bits()),
            };
        }
        assert!(args.len() <= MOST_ARGS, "{} arguments", args.len());
        Self { function, shape, count: args.len(), values }
    }

    /// Where each argument lies, as the driver wants to know it.
    pub(crate) fn args(&self) -> [*mut c_void; MOST_ARGS] {
        let at = |i: usize| std::ptr::from_ref(&self.values[i]).cast_mut().cast();
        std::array::from_fn(|i| if i < self.count { at(i) } else { std::ptr::null_mut() })
    }
}

/// Launches that can be issued by one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Graph(pub(crate) sys::CUgraphExec);

/// Launches that wait, and graphs of those that came before.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Vec<Launch>,
    /// Doublings of [`AT_FIRST`] since the device was idle.
    warmth: u32,
    /// How often runs came that have no graph yet, by their hash.
    seen: HashMap<u64, u32>,
    graphs: HashMap<u64, (Vec<Launch>, Graph)>,
}

/// What to do with the launches that waited.
pub(crate) enum Ready {
    /// There were none.
    Nothing,
    /// They are this graph.
    Known(Graph),
    /// Issue them one by one.
    New(Vec<Launch>),
    /// Make a graph of them, and [`keep`](Queue::keep) it under this key.
    SeenBefore(u64, Vec<Launch>),
}

impl Queue {
    /// Adds a launch; whether it is time to issue what waits.
    pub(crate) fn push(&mut self, launch: Launch) -> bool {
        self.waiting.push(launch);
        let full = self.waiting.len() >= (AT_FIRST << self.warmth).min(TOGETHER);
        self.warmth = (self.warmth + u32::from(full)).min(8);
        full
    }

    /// Notes that the device has nothing to do.
    pub(crate) fn idle(&mut self) {
        self.warmth = 0;
    }

    /// Everything that waits.
    pub(crate) fn take(&mut self) -> Ready {
        if self.waiting.is_empty() {
            return Ready::Nothing;
        }
        if self.waiting.len() < WORTH_A_GRAPH {
            return Ready::New(std::mem::take(&mut self.waiting));
        }
        let mut hasher = DefaultHasher::new();
        self.waiting.hash(&mut hasher);
        let key = hasher.finish();
        match self.graphs.get(&key) {
            Some((launches, graph)) if *launches == self.waiting => {
                self.waiting.clear();
                Ready::Known(*graph)
            }
            Some(_) => Ready::New(std::mem::take(&mut self.waiting)),
            None => {
                let launches = std::mem::take(&mut self.waiting);
                if self.seen.len() > 16 * MOST_GRAPHS {
                    self.seen.clear();
                }
                let times = self.seen.entry(key).or_default();
                *times += 1;
                if *times > 1 { Ready::SeenBefore(key, launches) } else { Ready::New(launches) }
            }
        }
    }

    /// Keeps a graph of launches. Returns graphs that are forgotten for it: all of them, when
    /// there are too many, since those in use come back at once.
    pub(crate) fn keep(&mut self, key: u64, launches: Vec<Launch>, graph: Graph) -> Vec<Graph> {
        let mut forgotten = Vec::new();
        if self.graphs.len() >= MOST_GRAPHS {
            forgotten.extend(self.graphs.drain().map(|(_, (_, graph))| graph));
        }
        self.seen.remove(&key);
        self.graphs.insert(key, (launches, graph));
        forgotten
    }
}
