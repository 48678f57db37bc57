//! The mixes that people know, by name.

use std::fmt;
use std::str::FromStr;

use lapidary_core::BlockType;

/// A rule for the types of a file's tensors.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[expect(non_camel_case_types, reason = "the names people know from files")]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Mix {
    F32,
    F16,
    BF16,
    Q8_0,
    Q6_K,
    Q5_K_M,
    Q5_K_S,
    Q5_1,
    Q5_0,
    Q4_K_M,
    Q4_K_S,
    Q4_1,
    Q4_0,
    IQ4_NL,
    IQ4_XS,
    Q3_K_L,
    Q3_K_M,
    Q3_K_S,
    Q2_K,
    Q2_K_S,
}

impl Mix {
    /// All of them, roughly from large to small.
    pub const ALL: [Self; 20] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q6_K,
        Self::Q5_K_M,
        Self::Q5_K_S,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4_K_M,
        Self::Q4_K_S,
        Self::Q4_1,
        Self::Q4_0,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::Q3_K_L,
        Self::Q3_K_M,
        Self::Q3_K_S,
        Self::Q2_K,
        Self::Q2_K_S,
    ];

    /// What most tensors get.
    pub fn base(self) -> BlockType {
        match self {
            Self::F32 => BlockType::F32,
            Self::F16 => BlockType::F16,
            Self::BF16 => BlockType::BF16,
            Self::Q8_0 => BlockType::Q8_0,
            Self::Q6_K => BlockType::Q6_K,
            Self::Q5_K_M | Self::Q5_K_S => BlockType::Q5_K,
            Self::Q5_1 => BlockType::Q5_1,
            Self::Q5_0 => BlockType::Q5_0,
            Self::Q4_K_M | Self::Q4_K_S => BlockType::Q4_K,
            Self::Q4_1 => BlockType::Q4_1,
            Self::Q4_0 => BlockType::Q4_0,
            Self::IQ4_NL => BlockType::IQ4_NL,
            Self::IQ4_XS => BlockType::IQ4_XS,
            Self::Q3_K_L | Self::Q3_K_M | Self::Q3_K_S => BlockType::Q3_K,
            Self::Q2_K | Self::Q2_K_S => BlockType::Q2_K,
        }
    }

    /// The mix whose base holds most of the given bytes.
    pub fn mostly(tensors: impl Iterator<Item = (BlockType, u64)>) -> Self {
        let mut bytes = [0_u64; Self::ALL.len()];
        for (block, own) in tensors {
            if let Some(i) = Self::ALL.iter().position(|mix| mix.base() == block) {
                bytes[i] += own;
            }
        }
        let most = (0..bytes.len()).max_by_key(|&i| bytes[i]);
        most.map_or(Self::F32, |i| Self::ALL[i])
    }

    /// What `general.file_type` says of it.
    pub fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q8_0 => 7,
            Self::Q5_0 => 8,
            Self::Q5_1 => 9,
            Self::Q2_K => 10,
            Self::Q3_K_S => 11,
            Self::Q3_K_M => 12,
            Self::Q3_K_L => 13,
            Self::Q4_K_S => 14,
            Self::Q4_K_M => 15,
            Self::Q5_K_S => 16,
            Self::Q5_K_M => 17,
            Self::Q6_K => 18,
            Self::Q2_K_S => 21,
            Self::IQ4_NL => 25,
            Self::IQ4_XS => 30,
            Self::BF16 => 32,
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let name = typed.to_uppercase();
        let medium = format!("{name}_M");
        let named = |wanted: &str| Self::ALL.into_iter().find(|mix| mix.to_string() == wanted);
        named(&name).or_else(|| named(&medium)).ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(ToString::to_string).collect();
            format!("`{typed}` is no mix; choose one of {}", all.join(", "))
        })
    }
}
