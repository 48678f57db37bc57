//! F32, F16, BF16: elements that are numbers of their own, in blocks of one.

use half::{bf16, f16};

pub(super) fn f32(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

pub(super) fn f16(block: &[u8], out: &mut [f32]) {
    out[0] = f16::from_le_bytes([block[0], block[1]]).to_f32();
}

pub(super) fn bf16(block: &[u8], out: &mut [f32]) {
    out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32();
}

pub(super) fn encode_f32(values: &[f32], out: &mut Vec<u8>) -> Result<(), usize> {
    out.extend(values[0].to_le_bytes());
    Ok(())
}

pub(super) fn encode_f16(values: &[f32], out: &mut Vec<u8>) -> Result<(), usize> {
    let rounded = f16::from_f32(values[0]);
    out.extend(rounded.to_le_bytes());
    check(values[0], rounded.is_infinite())
}

pub(super) fn encode_bf16(values: &[f32], out: &mut Vec<u8>) -> Result<(), usize> {
    let rounded = bf16::from_f32(values[0]);
    out.extend(rounded.to_le_bytes());
    check(values[0], rounded.is_infinite())
}

/// Only infinity may become infinity.
fn check(value: f32, infinite: bool) -> Result<(), usize> {
    if infinite && value.is_finite() { Err(0) } else { Ok(()) }
}
