//! Reads one GGUF file: everything before the tensor data, checked against the whole.

use std::collections::HashSet;
use std::ops::Range;

use lapidary_core::TensorInfo;

use super::cursor::{Cursor, STRING_BYTES};
use super::types::block_type;
use super::values::{GgufValue, PAIR_BYTES};
use super::{ALIGNMENT, ALIGNMENT_KEY, MAGIC, MOST_DIMS};
use crate::bytes::Bytes;
use crate::layout::stored_bytes;
use crate::{Fault, OpenError};

/// One file of a model, which may be all of it.
pub(super) struct Part {
    pub(super) origin: String,
    pub(super) bytes: Bytes,
    pub(super) values: Vec<(String, GgufValue)>,
    pub(super) tensors: Vec<Tensor>,
}

/// A tensor and where its bytes lie in the file.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) info: TensorInfo,
    pub(super) range: Range<usize>,
}

impl Part {
    pub(super) fn read(origin: String, bytes: Bytes) -> Result<Self, OpenError> {
        let mut header = Header::start(&origin, bytes.as_slice())?;
        let values = header.values()?;
        let alignment = alignment(&origin, &values)?;
        let tensors = header.tensors()?;
        let tensors = header.place(tensors, alignment)?;
        Ok(Self { values, tensors, bytes, origin })
    }

    pub(super) fn value(&self, key: &str) -> Option<&GgufValue> {
        self.values.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// Only the metadata of a file.
pub(super) fn read_values(
    origin: &str,
    bytes: &[u8],
) -> Result<Vec<(String, GgufValue)>, OpenError> {
    Header::start(origin, bytes)?.values()
}

/// A header, read up to some point. Its steps are called in the order they are written in.
struct Header<'a> {
    origin: &'a str,
    cursor: Cursor<'a>,
    len: usize,
    tensors: usize,
    keys: usize,
}

/// A tensor whose place is only claimed.
struct Claim {
    name: String,
    info: TensorInfo,
    bytes: usize,
    offset: u64,
}

impl<'a> Header<'a> {
    /// Reads up to the counts of what follows.
    fn start(origin: &'a str, bytes: &'a [u8]) -> Result<Self, OpenError> {
        let mut cursor = Cursor::new(bytes);
        magic(&mut cursor).map_err(|fault| fault.at(origin, "the magic number"))?;
        version(&mut cursor).map_err(|fault| fault.at(origin, "the version"))?;
        let tensors = cursor.count(TENSOR_BYTES);
        let tensors = tensors.map_err(|fault| fault.at(origin, "the number of tensors"))?;
        let keys = cursor.count(PAIR_BYTES);
        let keys = keys.map_err(|fault| fault.at(origin, "the number of keys"))?;
        Ok(Self { origin, cursor, len: bytes.len(), tensors, keys })
    }

    fn values(&mut self) -> Result<Vec<(String, GgufValue)>, OpenError> {
        let mut values = Vec::new();
        let mut seen = HashSet::new();
        for i in 1..=self.keys {
            let key = self.cursor.string();
            let key = key.map_err(|fault| fault.at(self.origin, format!("the name of key {i}")))?;
            let value = match seen.insert(key) {
                true => GgufValue::read(&mut self.cursor),
                false => Err(Fault::Twice),
            };
            let value = value.map_err(|fault| fault.at(self.origin, format!("key `{key}`")))?;
            values.push((key.to_owned(), value));
        }
        Ok(values)
    }

    fn tensors(&mut self) -> Result<Vec<Claim>, OpenError> {
        let mut claims = Vec::new();
        let mut seen = HashSet::new();
        for i in 1..=self.tensors {
            let name = self.cursor.string();
            let name =
                name.map_err(|fault| fault.at(self.origin, format!("the name of tensor {i}")))?;
            let claim = match seen.insert(name) {
                true => claim(&mut self.cursor, name),
                false => Err(Fault::Twice),
            };
            claims.push(claim.map_err(|fault| fault.at(self.origin, field(name)))?);
        }
        Ok(claims)
    }

    /// Turns claims into ranges of the file that lie inside it and share no byte.
    fn place(self, claims: Vec<Claim>, alignment: u32) -> Result<Vec<Tensor>, OpenError> {
        let data = (self.cursor.position() as u64).next_multiple_of(alignment.into());
        let mut tensors = Vec::new();
        for Claim { name, info, bytes, offset } in claims {
            let range = range(data, offset, bytes, alignment, self.len);
            let range = range.map_err(|fault| fault.at(self.origin, field(&name)))?;
            tensors.push(Tensor { name, info, range });
        }
        check_apart(self.origin, &tensors)?;
        Ok(tensors)
    }
}

fn magic(from: &mut Cursor<'_>) -> Result<(), Fault> {
    let magic = from.take(MAGIC.len() as u64)?;
    if magic == MAGIC {
        return Ok(());
    }
    Err(Fault::Magic(magic.try_into().expect("as many bytes were taken")))
}

fn version(from: &mut Cursor<'_>) -> Result<(), Fault> {
    match from.number::<u32>()? {
        2 | 3 => Ok(()),
        other if matches!(other.swap_bytes(), 1..=3) => Err(Fault::BigEndian),
        other => Err(Fault::Version(other)),
    }
}

fn claim(from: &mut Cursor<'_>, name: &str) -> Result<Claim, Fault> {
    let rank = from.number::<u32>()? as usize;
    if !(1..=MOST_DIMS).contains(&rank) {
        return Err(Fault::Rank(rank));
    }
    let mut shape = Vec::new();
    for _ in 0..rank {
        shape.push(usize::try_from(from.number::<u64>()?).map_err(|_| Fault::TooLarge)?);
    }
    shape.reverse();
    let id = from.number()?;
    let info = TensorInfo { block: block_type(id).ok_or(Fault::BlockType(id))?, shape };
    let bytes = stored_bytes(&info)?;
    Ok(Claim { name: name.to_owned(), info, bytes, offset: from.number()? })
}

fn range(
    data: u64,
    offset: u64,
    bytes: usize,
    alignment: u32,
    len: usize,
) -> Result<Range<usize>, Fault> {
    let alignment = alignment.into();
    if !offset.is_multiple_of(alignment) {
        return Err(Fault::Misaligned { offset, alignment });
    }
    let start = data.checked_add(offset);
    let end = start.and_then(|start| start.checked_add(bytes as u64)).ok_or(Fault::TooLarge)?;
    match usize::try_from(end) {
        Ok(end) if end <= len => Ok(end - bytes..end),
        _ => Err(Fault::PastEnd { end, len: len as u64 }),
    }
}

fn check_apart(origin: &str, tensors: &[Tensor]) -> Result<(), OpenError> {
    let mut sorted: Vec<&Tensor> = tensors.iter().collect();
    sorted.sort_by_key(|tensor| tensor.range.start);
    match sorted.array_windows().find(|[a, b]| b.range.start < a.range.end) {
        Some([a, b]) => Err(Fault::Overlap(a.name.clone()).at(origin, field(&b.name))),
        None => Ok(()),
    }
}

/// Alignment of offsets and data: what the file says, or the default.
fn alignment(origin: &str, values: &[(String, GgufValue)]) -> Result<u32, OpenError> {
    let value = values.iter().find(|(key, _)| key == ALIGNMENT_KEY).map(|(_, value)| value);
    match value {
        None => Ok(ALIGNMENT),
        Some(&GgufValue::U32(alignment)) if alignment.is_power_of_two() => Ok(alignment),
        Some(_) => Err(Fault::Expected("a power of two of type u32")
            .at(origin, format!("key `{ALIGNMENT_KEY}`"))),
    }
}

pub(super) fn field(tensor: &str) -> String {
    format!("tensor `{tensor}`")
}

/// Bytes of the shortest description of a tensor: an empty name, the number of dimensions, one
/// dimension, a type, an offset.
const TENSOR_BYTES: usize = STRING_BYTES + 4 + 8 + 4 + 8;
