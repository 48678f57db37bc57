//! Reads the header of a safetensors file: its length, a JSON object, then data without gaps.

use std::collections::BTreeMap;
use std::ops::Range;

use lapidary_core::{BlockType, TensorInfo, Value};

use crate::json::json;
use crate::layout::stored_bytes;
use crate::{Fault, OpenError};

/// One tensor of a file.
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Within the file.
    pub(crate) range: Range<usize>,
    /// Absent if the elements are not floats of 16 or 32 bits.
    pub(crate) info: Option<TensorInfo>,
}

/// The tensors of a file, in the order of their data.
pub(crate) fn read(origin: &str, bytes: &[u8]) -> Result<Vec<Entry>, OpenError> {
    let (members, start) = header(bytes).map_err(|fault| fault.at(origin, "the header"))?;
    let mut entries = Vec::new();
    for (name, member) in members.into_iter().filter(|(name, _)| name != "__metadata__") {
        let entry = entry(name.clone(), &member, start)
            .map_err(|fault| fault.at(origin, format!("tensor `{name}`")))?;
        entries.push(entry);
    }
    entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
    check_adjacent(origin, &entries, start..bytes.len())?;
    Ok(entries)
}

/// The header's members, and where the data starts.
fn header(bytes: &[u8]) -> Result<(BTreeMap<String, Value>, usize), Fault> {
    let left = bytes.len() as u64;
    let (len, rest) =
        bytes.split_first_chunk().ok_or(Fault::Truncated { needed: LENGTH as u64, left })?;
    let len = u64::from_le_bytes(*len);
    if len > MOST_HEADER {
        return Err(Fault::TooLong { len, most: MOST_HEADER });
    }
    let text = rest
        .get(..len as usize)
        .ok_or(Fault::Truncated { needed: len, left: rest.len() as u64 })?;
    match json(str::from_utf8(text).map_err(|_| Fault::Utf8)?)? {
        Value::Map(members) => Ok((members, LENGTH + len as usize)),
        _ => Err(Fault::Expected("a JSON object")),
    }
}

fn entry(name: String, member: &Value, data: usize) -> Result<Entry, Fault> {
    let dtype = member.get("dtype").and_then(Value::as_str);
    let dtype = dtype.ok_or(Fault::Expected("described by a `dtype`"))?;
    let shape = member.get("shape").and_then(sizes);
    let shape = shape.ok_or(Fault::Expected("described by a `shape` of whole numbers"))?;
    let range = member.get("data_offsets").and_then(sizes);
    let Some(&[start, end]) = range.as_deref() else {
        return Err(Fault::Expected("described by two `data_offsets`"));
    };
    let (Some(start), Some(end)) = (start.checked_add(data), end.checked_add(data)) else {
        return Err(Fault::TooLarge);
    };
    if end < start {
        return Err(Fault::Expected("described by ascending `data_offsets`"));
    }
    let info = float_type(dtype).map(|block| TensorInfo { block, shape });
    if let Some(info) = &info {
        check_length(stored_bytes(info)?, end - start)?;
    }
    Ok(Entry { name, range: start..end, info })
}

fn sizes(list: &Value) -> Option<Vec<usize>> {
    list.to_ints()?.into_iter().map(|size| usize::try_from(size).ok()).collect()
}

fn float_type(dtype: &str) -> Option<BlockType> {
    match dtype {
        "BF16" => Some(BlockType::BF16),
        "F16" => Some(BlockType::F16),
        "F32" => Some(BlockType::F32),
        _ => None,
    }
}

fn check_length(by_shape: usize, by_range: usize) -> Result<(), Fault> {
    if by_shape == by_range { Ok(()) } else { Err(Fault::Length { by_shape, by_range }) }
}

/// Checks that sorted entries cover the data exactly.
fn check_adjacent(origin: &str, entries: &[Entry], data: Range<usize>) -> Result<(), OpenError> {
    let mut expected = data.start;
    for Entry { name, range, .. } in entries {
        if range.start != expected {
            let fault = Fault::NotAdjacent { expected, found: range.start };
            return Err(fault.at(origin, format!("tensor `{name}`")));
        }
        expected = range.end;
    }
    match expected == data.end {
        true => Ok(()),
        false => Err(Fault::PastEnd { end: expected as u64, len: data.end as u64 }
            .at(origin, "the data of all tensors")),
    }
}

/// Bytes of the header's length.
const LENGTH: usize = size_of::<u64>();

/// Far more than any checkpoint has, and few enough that its tree fits in memory.
const MOST_HEADER: u64 = 16 << 20;
