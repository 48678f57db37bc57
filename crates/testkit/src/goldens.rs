//! Golden values of an independent implementation.

use std::path::Path;

use lapidary_core::TokenId;
use safetensors::{Dtype, SafeTensors};

/// A file of named tensors.
pub struct Goldens {
    bytes: Vec<u8>,
}

impl Goldens {
    /// Reads a safetensors file.
    ///
    /// # Panics
    /// If there is none.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self { bytes }
    }

    /// The names of all tensors.
    pub fn names(&self) -> Vec<String> {
        self.file().names().into_iter().map(str::to_owned).collect()
    }

    /// The rows of an f32 matrix.
    ///
    /// # Panics
    /// If it is none.
    pub fn rows(&self, name: &str) -> Vec<Vec<f32>> {
        let file = self.file();
        let tensor = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
        let cols = *tensor.shape().last().expect("a matrix has columns");
        let numbers = tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        numbers.collect::<Vec<_>>().chunks_exact(cols).map(<[f32]>::to_vec).collect()
    }

    /// A list of token ids.
    ///
    /// # Panics
    /// If it is none.
    pub fn tokens(&self, name: &str) -> Vec<TokenId> {
        let file = self.file();
        let tensor = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(tensor.dtype(), Dtype::I32, "{name}");
        tensor.data().as_chunks().0.iter().map(|b| TokenId(u32::from_le_bytes(*b))).collect()
    }

    /// The bytes of a tensor of bytes.
    ///
    /// # Panics
    /// If it is none.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let file = self.file();
        let tensor = file.tensor(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(tensor.dtype(), Dtype::U8, "{name}");
        tensor.data().to_vec()
    }

    fn file(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("golden files are well formed")
    }
}

/// The largest absolute difference; infinite if the lengths differ or a number is NaN.
pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return f32::INFINITY;
    }
    let difference = |(a, b): (&f32, &f32)| (a - b).abs();
    let worse = |most: f32, d: f32| if d.is_nan() || d > most { d } else { most };
    let most = a.iter().zip(b).map(difference).fold(0.0, worse);
    if most.is_nan() { f32::INFINITY } else { most }
}
