//! Which device runs a model. The only place that names concrete backends.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_backend_cuda::{Cubins, Cuda, OpenError};
use lapidary_core::{Backend, KvKernels};
use lapidary_measure::Ceilings;

use crate::args::DeviceArgs;
use crate::failure::Failure;

/// A device as it is typed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DeviceName {
    Cpu,
    Cuda(usize),
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let index = s.strip_prefix("cuda").map(|rest| match rest.strip_prefix(':') {
            Some(index) => index.parse().ok(),
            None => rest.is_empty().then_some(0),
        });
        match (s, index) {
            ("cpu", _) => Ok(Self::Cpu),
            (_, Some(Some(index))) => Ok(Self::Cuda(index)),
            _ => Err(format!("`{s}` is no device; use cpu, cuda or cuda:N")),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// A backend that can be made from options.
pub(crate) trait Device: KvKernels {
    /// What it is made from. The device itself may not leave the thread that made it.
    type Settings: Send + 'static;
    /// Makes it ready.
    fn open(settings: Self::Settings) -> Result<Self, Failure>;
    /// What it can do at most, if that can be measured.
    fn ceilings(&self) -> Option<Ceilings>;
}

/// Something to be done on whichever device was asked for.
pub(crate) trait Work {
    /// What comes of it.
    type Done;
    /// Does it on a device of this kind.
    fn on<D: Device>(self, settings: D::Settings) -> Result<Self::Done, Failure>;
}

/// Does the work on the CPU, with its best instructions.
pub(crate) fn run_on_cpu<W: Work>(threads: Option<u16>, work: W) -> Result<W::Done, Failure> {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    work.on::<Cpu>((Isa::best(), threads.map_or(here, usize::from)))
}

/// Does the work on the device that the options name.
pub(crate) fn run_on<W: Work>(args: &DeviceArgs, work: W) -> Result<W::Done, Failure> {
    match args.device() {
        DeviceName::Cpu => {
            let here = std::thread::available_parallelism().map_or(1, usize::from);
            let threads = args.threads.map_or(here, usize::from);
            work.on::<Cpu>((args.isa.unwrap_or_else(Isa::best), threads))
        }
        DeviceName::Cuda(index) => work.on::<Cuda>(index),
    }
}

/// The first GPU if it can be used, which is said, or else the CPU.
pub(crate) fn best_device() -> DeviceName {
    match Cuda::open(0, cubins()) {
        Ok(cuda) => {
            eprintln!("note: running on {}; --device cpu runs on the CPU", cuda.name());
            DeviceName::Cuda(0)
        }
        Err(_) => DeviceName::Cpu,
    }
}

impl Device for Cpu {
    /// Instruction set and threads.
    type Settings = (Isa, usize);

    fn open((isa, threads): (Isa, usize)) -> Result<Self, Failure> {
        Self::new(isa, threads).map_err(|e| Failure::usage("isa", e))
    }

    fn ceilings(&self) -> Option<Ceilings> {
        Some(Ceilings { bytes_per_s: self.read_rate(), ops_per_s: self.multiply_rate() })
    }
}

impl Device for Cuda {
    /// Which of the machine's devices.
    type Settings = usize;

    fn open(index: usize) -> Result<Self, Failure> {
        Self::open(index, cubins()).map_err(|e| Failure::work("device", e))
    }

    fn ceilings(&self) -> Option<Ceilings> {
        None
    }
}

/// A GPU that can be used.
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) free_bytes: usize,
    pub(crate) total_bytes: usize,
}

/// Every GPU, or why one cannot be used; without any, why there is none.
pub(crate) fn gpus() -> Vec<Result<Gpu, OpenError>> {
    let mut found = Vec::new();
    loop {
        match Cuda::open(found.len(), cubins()) {
            Ok(cuda) => {
                let (free_bytes, total_bytes) = cuda.memory();
                found.push(Ok(Gpu { name: cuda.name(), free_bytes, total_bytes }));
            }
            Err(OpenError::NoDevice { .. }) if !found.is_empty() => return found,
            Err(old @ OpenError::OldDevice { .. }) => found.push(Err(old)),
            Err(error) => {
                found.push(Err(error));
                return found;
            }
        }
    }
}

/// Compiled kernels are kept where the system keeps what a program can make again.
#[expect(clippy::disallowed_methods, reason = "the command line is where the environment is read")]
fn cubins() -> Cubins {
    let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let cache = named("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| named("HOME").map(|home| PathBuf::from(home).join(".cache")));
    cache.map_or(Cubins::Nowhere, |cache| Cubins::Folder(cache.join("lapidary").join("cubins")))
}
