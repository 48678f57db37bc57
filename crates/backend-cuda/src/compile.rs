//! From kernel sources to cubins: NVRTC for the device at hand, with a cache on disk.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, CString, c_char};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use cudarc::nvrtc::sys;
use thiserror::Error;

/// Where compiled kernels are kept between runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Cubins {
    /// In files of a folder, which is made if it is absent. Anybody who can write there can run
    /// code on the device.
    Folder(PathBuf),
    /// Nowhere: every process compiles what it needs.
    Nowhere,
}

/// A kernel cannot be had.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum KernelError {
    /// NVRTC refused the source.
    #[error("kernel {file} does not compile for {architecture}: {log}")]
    Compile {
        /// The file.
        file: &'static str,
        /// What it was compiled for.
        architecture: String,
        /// What the compiler says.
        log: String,
    },
    /// The driver refused the cubin.
    #[error("the driver cannot load kernel {file} ({reason}); is it older than NVRTC?")]
    Load {
        /// The file.
        file: &'static str,
        /// The driver's own name of the failure.
        reason: String,
    },
}

/// Headers that kernels include.
const HEADERS: [(&CStr, &str); 8] = [
    (c"base.cuh", include_str!("../kernels/base.cuh")),
    (c"lanes.cuh", include_str!("../kernels/lanes.cuh")),
    (c"math.cuh", include_str!("../kernels/math.cuh")),
    (c"quantise.cuh", include_str!("../kernels/quantise.cuh")),
    (c"record.cuh", include_str!("../kernels/record.cuh")),
    (c"rotated.cuh", include_str!("../kernels/rotated.cuh")),
    (c"tensor.cuh", include_str!("../kernels/tensor.cuh")),
    (c"view.cuh", include_str!("../kernels/view.cuh")),
];

/// A source to compile.
#[derive(Clone, Copy)]
pub(crate) struct Source {
    /// Its file name, for messages.
    pub(crate) file: &'static str,
    /// Its text.
    pub(crate) text: &'static str,
    /// The `FORMAT` it is compiled for.
    pub(crate) format: u32,
}

/// Compiles for one architecture.
pub(crate) struct Compiler {
    architecture: String,
    version: (i32, i32),
    cubins: Cubins,
}

impl Compiler {
    /// For a device of the given compute capability; `None` without NVRTC.
    pub(crate) fn new((major, minor): (u32, u32), cubins: Cubins) -> Option<Self> {
        // SAFETY: looks for the library, without calling it.
        if !unsafe { sys::is_culib_present() } {
            return None;
        }
        let mut version = (0, 0);
        // SAFETY: writes two integers.
        unsafe { sys::nvrtcVersion(&raw mut version.0, &raw mut version.1) };
        // Hopper's own instructions need the variant that is bound to it.
        let suffix = if (major, minor) == (9, 0) { "a" } else { "" };
        Some(Self { architecture: format!("sm_{major}{minor}{suffix}"), version, cubins })
    }

    /// What the compiler is, for reports.
    pub(crate) fn name(&self) -> String {
        format!("NVRTC {}.{}, {}", self.version.0, self.version.1, self.architecture)
    }

    /// The cubin of a source: from the folder if it is there, else compiled and put there.
    pub(crate) fn cubin(&self, source: Source) -> Result<Vec<u8>, KernelError> {
        let path = match &self.cubins {
            Cubins::Folder(folder) => folder.join(self.file_name(source)),
            Cubins::Nowhere => return self.compile(source),
        };
        if let Ok(kept) = std::fs::read(&path) {
            return Ok(kept);
        }
        let cubin = self.compile(source)?;
        // The cache only saves time: a folder that cannot be written is as good as none. A file
        // appears whole or not at all.
        let fresh = path.with_extension(format!("{}.part", std::process::id()));
        let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        if parent.and_then(|()| std::fs::write(&fresh, &cubin)).is_ok() {
            let _ = std::fs::rename(&fresh, &path);
        }
        Ok(cubin)
    }

    /// Names everything that the cubin depends on.
    fn file_name(&self, source: Source) -> String {
        let mut hasher = DefaultHasher::new();
        (source.text, source.format, &self.architecture, self.version).hash(&mut hasher);
        HEADERS.hash(&mut hasher);
        let stem = source.file.trim_end_matches(".cu");
        format!("{stem}-{}-{:016x}.cubin", source.format, hasher.finish())
    }

    fn compile(&self, source: Source) -> Result<Vec<u8>, KernelError> {
        let options = [
            format!("--gpu-architecture={}", self.architecture),
            "--fmad=false".to_owned(),
            "--std=c++17".to_owned(),
            format!("-DFORMAT={}", source.format),
        ];
        nvrtc(source, &options).map_err(|log| KernelError::Compile {
            file: source.file,
            architecture: self.architecture.clone(),
            log,
        })
    }
}

/// Runs NVRTC; the error is its log.
fn nvrtc(source: Source, options: &[String]) -> Result<Vec<u8>, String> {
    let c_string = |text: &str| CString::new(text).map_err(|e| e.to_string());
    let text = c_string(source.text)?;
    let file = c_string(source.file)?;
    let options = options.iter().map(|o| c_string(o)).collect::<Result<Vec<_>, _>>()?;
    let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
    let headers = HEADERS.iter().map(|(_, text)| c_string(text)).collect::<Result<Vec<_>, _>>()?;
    let headers: Vec<*const c_char> = headers.iter().map(|h| h.as_ptr()).collect();
    let names: Vec<*const c_char> = HEADERS.iter().map(|(name, _)| name.as_ptr()).collect();
    let ok = sys::nvrtcResult::NVRTC_SUCCESS;
    let mut program = std::ptr::null_mut();
    // SAFETY: all strings end with a zero and outlive the program; sizes are what NVRTC says.
    unsafe {
        let count = headers.len() as i32;
        let made = sys::nvrtcCreateProgram(
            &raw mut program,
            text.as_ptr(),
            file.as_ptr(),
            count,
            headers.as_ptr(),
            names.as_ptr(),
        );
        if made != ok {
            return Err(format!("{made:?}"));
        }
        let done = sys::nvrtcCompileProgram(program, options.len() as i32, options.as_ptr());
        let mut size = 0;
        let result = if done == ok {
            sys::nvrtcGetCUBINSize(program, &raw mut size);
            let mut cubin = vec![0_u8; size];
            match sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()) {
                got if got == ok => Ok(cubin),
                got => Err(format!("{got:?}")),
            }
        } else {
            sys::nvrtcGetProgramLogSize(program, &raw mut size);
            let mut log = vec![0_u8; size];
            sys::nvrtcGetProgramLog(program, log.as_mut_ptr().cast());
            Err(String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned())
        };
        sys::nvrtcDestroyProgram(&raw mut program);
        result
    }
}
