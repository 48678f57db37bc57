//! Golden vectors: inputs and output bits that an independent script made by exact arithmetic.

use lapidary_core::Backend;

use super::{FLOATS, assert_bits, matrix, quantised, read};
use crate::repository;

const FOLDER: &str = "crates/testkit/tests/data/numerics";

/// The arrays of one file, each preceded by its length in bytes.
fn arrays(name: &str) -> Vec<Vec<u8>> {
    let path = repository(FOLDER).join(format!("{name}.bin"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut rest = &bytes[..];
    let mut arrays = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let (array, after) = after.split_at(u32::from_le_bytes(*len) as usize);
        arrays.push(array.to_vec());
        rest = after;
    }
    arrays
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn sizes(bytes: &[u8]) -> Vec<usize> {
    bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b) as usize).collect()
}

/// Every matrix has the stored output bits, with all rows together and with each alone.
///
/// # Panics
/// If one has not.
pub fn matrices_reproduce_the_vectors<B: Backend>(ops: &B) {
    for block in quantised().chain(FLOATS) {
        let name = block.to_string().to_lowercase();
        let [dims, x, weights, y] = &arrays(&name)[..] else { panic!("{name} has four arrays") };
        let [cols, height, count] = sizes(dims)[..] else { panic!("{name} has three sizes") };
        let (x, y) = (floats(x), floats(y));
        let weight = matrix(ops, block, [1, height, cols], weights);
        let product = |x: &[f32]| read(ops, &ops.linear(&ops.upload(x, cols), &weight));
        assert_bits(&product(&x), &y, &format!("{}: {count} rows of {name}", ops.name()));
        for (x, y) in x.chunks_exact(cols).zip(y.chunks_exact(height)) {
            assert_bits(&product(x), y, &format!("{}: one row of {name}", ops.name()));
        }
    }
}

/// The curves have the stored output bits: every device computes `exp` and `tanh` by the same
/// polynomial.
///
/// # Panics
/// If one has not.
pub fn curves_reproduce_the_vectors<B: Backend>(ops: &B) {
    let [dims, a, cap, y] = &arrays("softcap")[..] else { panic!("softcap has four arrays") };
    let (cols, cap) = (sizes(dims)[0], floats(cap)[0]);
    let ours = ops.softcap(ops.upload(&floats(a), cols), cap);
    assert_bits(&read(ops, &ours), &floats(y), &format!("{}: softcap", ops.name()));

    let [dims, a, b, y] = &arrays("gelu_mul")[..] else { panic!("gelu_mul has four arrays") };
    let rows = |x: &[u8]| ops.upload(&floats(x), sizes(dims)[0]);
    let ours = ops.gelu_mul(&rows(a), &rows(b));
    assert_bits(&read(ops, &ours), &floats(y), &format!("{}: gelu_mul", ops.name()));
}

/// Norms have the stored output bits: sixteen lanes, added in halves.
///
/// # Panics
/// If one has not.
pub fn norms_reproduce_the_vectors<B: Backend>(ops: &B) {
    let [dims, a, w, y] = &arrays("rms_norm")[..] else { panic!("rms_norm has four arrays") };
    let x = ops.upload(&floats(a), sizes(dims)[0]);
    let ours = ops.rms_norm(&x, &ops.vector(&floats(w)), 1e-6);
    assert_bits(&read(ops, &ours), &floats(y), &format!("{}: rms_norm", ops.name()));
}
