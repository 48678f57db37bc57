//! Why a model file could not be opened.

use std::io;

use lapidary_core::BlockType;
use thiserror::Error;

/// A file or folder cannot be used. The message names the file, the field and the reason.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system would not give us the file.
    #[error("{path} cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// A path that is no model.
    #[error(
        "{path} {found}: expected a GGUF file, a folder with config.json, or one with a single GGUF file"
    )]
    NotAModel {
        /// The path.
        path: String,
        /// What lies there.
        found: String,
    },
    /// The bytes do not mean what their format says they should.
    #[error("{origin}: {field} {fault}")]
    Malformed {
        /// The file.
        origin: String,
        /// The field that is wrong.
        field: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A part of a split file, but not the first.
    #[error("{path} is part {part} of {count}: open the first part instead, {first}")]
    LaterPart {
        /// The file.
        path: String,
        /// Which part it is, from 1.
        part: i64,
        /// How many there are.
        count: i64,
        /// The name of the first.
        first: String,
    },
    /// A first part whose name does not tell the names of the others.
    #[error("{path} is the first of {count} parts: its name must end in -00001-of-{count:05}.gguf")]
    PartName {
        /// The file.
        path: String,
        /// How many parts there are.
        count: i64,
    },
    /// A first part that has no folder to look for the others in.
    #[error("{origin} is one of {count} parts: join them into one file first")]
    PartInMemory {
        /// What the bytes are called.
        origin: String,
        /// How many parts there are.
        count: i64,
    },
    /// A part of a split file is not where it should be.
    #[error("{path} is missing: all {count} parts must lie in one folder")]
    MissingPart {
        /// The missing file.
        path: String,
        /// How many parts there are.
        count: i64,
    },
    /// The parts do not hold as many tensors as the first part promises.
    #[error("{origin}: `split.tensors.count` is {promised}, but the parts hold {found} tensors")]
    PartTensors {
        /// The first part.
        origin: String,
        /// What it says.
        promised: i64,
        /// What there is.
        found: usize,
    },
    /// A folder lacks a file without which it is no model.
    #[error("{folder} has no {file}")]
    MissingFile {
        /// The folder.
        folder: String,
        /// What it lacks.
        file: &'static str,
    },
    /// The index of a folder names a shard that does not exist.
    #[error("{folder}: shard {shard} is missing: fetch it into the folder")]
    MissingShard {
        /// The folder.
        folder: String,
        /// The shard's name.
        shard: String,
    },
    /// A name that is to stay within a folder does not.
    #[error("{folder}: `{name}` is not a plain file name")]
    NotAFileName {
        /// The folder.
        folder: String,
        /// The name.
        name: String,
    },
    /// The index of a folder places a tensor in a shard that lacks it.
    #[error("{folder}: tensor `{tensor}` is not in {shard}, where the index places it")]
    NotInShard {
        /// The folder.
        folder: String,
        /// The tensor.
        tensor: String,
        /// The shard.
        shard: String,
    },
}

/// What is wrong with a field. Reads as the predicate of a sentence about the field.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Fault {
    /// The file ends inside the field.
    #[error("takes {needed} bytes, but {left} are left: the file is cut short or damaged")]
    Truncated {
        /// Bytes of the field.
        needed: u64,
        /// Bytes left in the file.
        left: u64,
    },
    /// A count that the rest of the file is too short for.
    #[error("is {count}, too many for the {left} bytes left: the file is cut short or damaged")]
    Count {
        /// The count.
        count: u64,
        /// Bytes left in the file.
        left: u64,
    },
    /// The first four bytes are not those of a GGUF file.
    #[error("is `{}` instead of `GGUF`: this is no GGUF file", .0.escape_ascii())]
    Magic([u8; 4]),
    /// A GGUF file for machines with the other byte order.
    #[error("is big-endian: convert the file to little-endian")]
    BigEndian,
    /// A version of GGUF that is not read.
    #[error("is {0}, but only versions 2 and 3 can be read: convert the file anew")]
    Version(u32),
    /// Text that is not text.
    #[error("is not valid UTF-8")]
    Utf8,
    /// A metadata value of a type that GGUF does not define.
    #[error("has the unknown value type {0}")]
    ValueType(u32),
    /// A truth value that is neither.
    #[error("holds the byte {0} as a truth value, which must be 0 or 1")]
    Bool(u8),
    /// Arrays of arrays of arrays.
    #[error("nests arrays more than {0} deep")]
    Depth(usize),
    /// A number that a metadata tree cannot hold.
    #[error("is {0}, more than a signed 64-bit integer holds")]
    Wide(u64),
    /// Arrays of bytes or truth values that would take far more memory than the file.
    #[error("brings the bytes and truth values in arrays to more than {0}")]
    Narrow(usize),
    /// The same name again.
    #[error("appears twice")]
    Twice,
    /// The same name again, in another file.
    #[error("appears twice, also in {0}")]
    TwiceIn(String),
    /// A tensor of a type that has no decoder.
    #[error("has the unknown type id {0}: convert it to another type")]
    BlockType(u32),
    /// Too few or too many dimensions.
    #[error("has {0} dimensions instead of 1 to 4")]
    Rank(usize),
    /// A dimension of length zero.
    #[error("has a dimension of length 0")]
    Empty,
    /// More elements or bytes than an address can count.
    #[error("is larger than this machine can address")]
    TooLarge,
    /// Rows that do not end where a block ends.
    #[error("has rows of {cols} elements, not a whole number of {block} blocks")]
    Ragged {
        /// Length of a row.
        cols: usize,
        /// How elements are stored.
        block: BlockType,
    },
    /// An offset that is not a multiple of the file's alignment.
    #[error("starts at offset {offset}, not a multiple of the alignment {alignment}")]
    Misaligned {
        /// From the start of the data.
        offset: u64,
        /// Of this file.
        alignment: u64,
    },
    /// A range that reaches past the end of the data.
    #[error("ends at byte {end}, but the file has {len}: the file is cut short or damaged")]
    PastEnd {
        /// End of the range.
        end: u64,
        /// Bytes that exist.
        len: u64,
    },
    /// Two tensors that share bytes.
    #[error("overlaps tensor `{0}`")]
    Overlap(String),
    /// Data that does not start where the previous tensor ends.
    #[error("starts at {found} instead of {expected}: tensors must follow without gap or overlap")]
    NotAdjacent {
        /// End of the data before.
        expected: usize,
        /// Where it starts.
        found: usize,
    },
    /// A shape and a range that contradict each other.
    #[error("takes {by_shape} bytes by its shape, but {by_range} by its offsets")]
    Length {
        /// From type and shape.
        by_shape: usize,
        /// From the offsets.
        by_range: usize,
    },
    /// A value of another kind than the format asks for.
    #[error("is not {0}")]
    Expected(&'static str),
    /// A header larger than any model needs.
    #[error("is {len} bytes long, more than the {most} that are allowed")]
    TooLong {
        /// Bytes it claims.
        len: u64,
        /// The most it may have.
        most: u64,
    },
    /// Text that is no JSON.
    #[error("is not valid JSON: {0}")]
    Json(String),
    /// A JSON object with the same member twice, of which a reader would see only one.
    #[error("has an object with the same member twice")]
    MemberTwice,
}

impl Fault {
    /// The error that says which field of which file is at fault.
    pub(crate) fn at(self, origin: &str, field: impl Into<String>) -> OpenError {
        OpenError::Malformed { origin: origin.to_owned(), field: field.into(), fault: self }
    }
}
