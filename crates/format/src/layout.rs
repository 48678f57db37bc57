//! What a shape takes in bytes, and which shapes there can be.

use lapidary_core::TensorInfo;

use crate::Fault;

/// Bytes of a tensor as stored.
///
/// A success is what [`TensorInfo`] promises: no dimension is zero, elements and bytes can be
/// counted, and every row is a whole number of blocks.
pub(crate) fn stored_bytes(info: &TensorInfo) -> Result<usize, Fault> {
    if info.shape.contains(&0) {
        return Err(Fault::Empty);
    }
    let count = |dims: &[usize]| dims.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim));
    count(&info.shape).ok_or(Fault::TooLarge)?;
    let Some((&cols, outer)) = info.shape.split_last() else {
        return info.block.row_bytes(1).ok_or(Fault::Ragged { cols: 1, block: info.block });
    };
    let row = info.block.row_bytes(cols).ok_or(Fault::Ragged { cols, block: info.block })?;
    count(outer).and_then(|rows| rows.checked_mul(row)).ok_or(Fault::TooLarge)
}
