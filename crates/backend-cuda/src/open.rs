//! Finding a device: every way in which a machine can fall short is one clear sentence.

use thiserror::Error;

/// The device cannot be used.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum OpenError {
    /// The driver's library is not installed.
    #[error("there is no NVIDIA driver on this machine; use `--device cpu`, or install one")]
    NoDriver,
    /// The driver does not support the CUDA version that the kernels need.
    #[error("the NVIDIA driver supports CUDA {found}, but {needed} is needed; update the driver")]
    OldDriver {
        /// What the driver supports, as `major.minor`.
        found: String,
        /// The least that is needed.
        needed: String,
    },
    /// The index names no device.
    #[error("there is no CUDA device {index}: this machine has {count}")]
    NoDevice {
        /// The index asked for.
        index: usize,
        /// How many devices there are.
        count: usize,
    },
    /// The device's architecture is older than the kernels.
    #[error("{name} has compute capability {found}, but 8.0 is needed; use `--device cpu`")]
    OldDevice {
        /// What the device is called.
        name: String,
        /// Its compute capability, as `major.minor`.
        found: String,
    },
    /// The run-time compiler is not installed.
    #[error("NVRTC (libnvrtc.so) is not on the library path; install the CUDA toolkit's runtime")]
    NoCompiler,
    /// A call of the driver failed.
    #[error("the CUDA driver failed to {doing}: {reason}")]
    Driver {
        /// What was tried.
        doing: &'static str,
        /// The driver's own name of the failure.
        reason: String,
    },
    /// The kernels that every model needs do not compile or load.
    #[error(transparent)]
    Kernels(#[from] crate::compile::KernelError),
}
