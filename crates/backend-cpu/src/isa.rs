//! Which instructions the kernels use.

use std::fmt;
use std::str::FromStr;

use lapidary_core::Unsupported;

/// An instruction set with kernels. All of them compute the same bits.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Isa {
    /// Nothing beyond what the target guarantees.
    Plain,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl Isa {
    /// From least to most capable.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Avx2, Self::Avx512];

    /// The most capable one that this machine has.
    pub fn best() -> Self {
        Self::ALL.into_iter().rfind(|isa| isa.is_here()).unwrap_or(Self::Plain)
    }

    /// Whether this machine has it.
    pub fn is_here(self) -> bool {
        match self {
            Self::Plain => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_here()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Itself, if this machine has it.
    ///
    /// # Errors
    /// The machine lacks it; the message says what it has.
    pub fn checked(self) -> Result<Self, Unsupported> {
        if self.is_here() {
            return Ok(self);
        }
        let best = Self::best();
        Err(Unsupported(format!("this machine has no {self}; its best instruction set is {best}")))
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512-vnni",
        })
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|isa| isa.to_string() == s);
        found.ok_or_else(|| format!("`{s}` is not one of plain, avx2, avx512-vnni"))
    }
}
