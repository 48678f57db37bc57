//! Metadata values with GGUF's own types: reading, writing, and as a plain tree.

use std::collections::BTreeMap;

use lapidary_core::{Strings, Value};

use super::cursor::{Cursor, STRING_BYTES};
use super::number::Number;
use crate::Fault;

/// A metadata value. Readers of GGUF files often insist on one integer type, so a writer has to
/// choose it.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum GgufValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    Array(GgufArray),
}

/// A metadata array. All of its elements have one type.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum GgufArray {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Str(Strings),
    Array(Vec<Self>),
}

impl GgufValue {
    /// The number, if it is a whole one of any width that fits.
    pub fn as_int(&self) -> Option<i64> {
        match *self {
            Self::U8(n) => Some(n.into()),
            Self::I8(n) => Some(n.into()),
            Self::U16(n) => Some(n.into()),
            Self::I16(n) => Some(n.into()),
            Self::U32(n) => Some(n.into()),
            Self::I32(n) => Some(n.into()),
            Self::U64(n) => n.try_into().ok(),
            Self::I64(n) => Some(n),
            _ => None,
        }
    }

    pub(super) fn read(from: &mut Cursor<'_>) -> Result<Self, Fault> {
        Ok(match from.number::<u32>()? {
            U8 => Self::U8(from.number()?),
            I8 => Self::I8(from.number()?),
            U16 => Self::U16(from.number()?),
            I16 => Self::I16(from.number()?),
            U32 => Self::U32(from.number()?),
            I32 => Self::I32(from.number()?),
            U64 => Self::U64(from.number()?),
            I64 => Self::I64(from.number()?),
            F32 => Self::F32(from.number()?),
            F64 => Self::F64(from.number()?),
            BOOL => Self::Bool(from.bool()?),
            STR => Self::Str(from.string()?.to_owned()),
            ARRAY => Self::Array(GgufArray::read(from, MOST_DEPTH)?),
            id => return Err(Fault::ValueType(id)),
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(n) => number(U8, *n, out),
            Self::I8(n) => number(I8, *n, out),
            Self::U16(n) => number(U16, *n, out),
            Self::I16(n) => number(I16, *n, out),
            Self::U32(n) => number(U32, *n, out),
            Self::I32(n) => number(I32, *n, out),
            Self::U64(n) => number(U64, *n, out),
            Self::I64(n) => number(I64, *n, out),
            Self::F32(x) => number(F32, *x, out),
            Self::F64(x) => number(F64, *x, out),
            Self::Bool(truth) => number(BOOL, u8::from(*truth), out),
            Self::Str(text) => {
                STR.write(out);
                string(text, out);
            }
            Self::Array(array) => {
                ARRAY.write(out);
                array.write(out);
            }
        }
    }

    /// Checks that a tree can hold the value. `narrow` is what is left of [`MOST_NARROW`].
    pub(super) fn check(&self, narrow: &mut usize) -> Result<(), Fault> {
        match self {
            Self::U64(n) => check_signed(*n),
            Self::Array(array) => array.check(MOST_DEPTH, narrow),
            _ => Ok(()),
        }
    }

    /// The value as a tree holds it, if it passed [`check`](Self::check).
    fn plain(self) -> Value {
        match self {
            Self::F32(x) => Value::Float(x.into()),
            Self::F64(x) => Value::Float(x),
            Self::Bool(truth) => Value::Bool(truth),
            Self::Str(text) => Value::Str(text),
            Self::Array(array) => array.plain(),
            whole => Value::Int(whole.as_int().expect("it is a whole number and was checked")),
        }
    }
}

impl GgufArray {
    fn read(from: &mut Cursor<'_>, depth: usize) -> Result<Self, Fault> {
        Ok(match from.number::<u32>()? {
            U8 => Self::U8(from.numbers()?),
            I8 => Self::I8(from.numbers()?),
            U16 => Self::U16(from.numbers()?),
            I16 => Self::I16(from.numbers()?),
            U32 => Self::U32(from.numbers()?),
            I32 => Self::I32(from.numbers()?),
            U64 => Self::U64(from.numbers()?),
            I64 => Self::I64(from.numbers()?),
            F32 => Self::F32(from.numbers()?),
            F64 => Self::F64(from.numbers()?),
            BOOL => Self::Bool(from.bools()?),
            STR => Self::Str(from.strings()?),
            ARRAY => {
                let depth = deeper(depth)?;
                let count = from.count(ARRAY_BYTES)?;
                Self::Array((0..count).map(|_| Self::read(from, depth)).collect::<Result<_, _>>()?)
            }
            id => return Err(Fault::ValueType(id)),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(list) => numbers(U8, list, out),
            Self::I8(list) => numbers(I8, list, out),
            Self::U16(list) => numbers(U16, list, out),
            Self::I16(list) => numbers(I16, list, out),
            Self::U32(list) => numbers(U32, list, out),
            Self::I32(list) => numbers(I32, list, out),
            Self::U64(list) => numbers(U64, list, out),
            Self::I64(list) => numbers(I64, list, out),
            Self::F32(list) => numbers(F32, list, out),
            Self::F64(list) => numbers(F64, list, out),
            Self::Bool(list) => {
                start(BOOL, list.len(), out);
                out.extend(list.iter().map(|&truth| u8::from(truth)));
            }
            Self::Str(list) => {
                start(STR, list.len(), out);
                list.iter().for_each(|text| string(text, out));
            }
            Self::Array(list) => {
                start(ARRAY, list.len(), out);
                list.iter().for_each(|array| array.write(out));
            }
        }
    }

    fn check(&self, depth: usize, narrow: &mut usize) -> Result<(), Fault> {
        match self {
            Self::U8(list) => spend(list.len(), narrow),
            Self::I8(list) => spend(list.len(), narrow),
            Self::U16(list) => spend(list.len(), narrow),
            Self::I16(list) => spend(list.len(), narrow),
            Self::Bool(list) => spend(list.len(), narrow),
            Self::U64(list) => list.iter().try_for_each(|&n| check_signed(n)),
            Self::Array(list) => {
                let depth = deeper(depth)?;
                list.iter().try_for_each(|array| array.check(depth, narrow))
            }
            _ => Ok(()),
        }
    }

    fn plain(self) -> Value {
        match self {
            Self::U8(list) => ints(list),
            Self::I8(list) => ints(list),
            Self::U16(list) => ints(list),
            Self::I16(list) => ints(list),
            Self::U32(list) => ints(list),
            Self::I32(list) => ints(list),
            Self::U64(list) => Value::Ints(list.into_iter().map(u64::cast_signed).collect()),
            Self::I64(list) => Value::Ints(list),
            Self::F32(list) => Value::Floats(list),
            Self::F64(list) => Value::List(list.into_iter().map(Value::Float).collect()),
            Self::Bool(list) => Value::List(list.into_iter().map(Value::Bool).collect()),
            Self::Str(list) => Value::Strings(list),
            Self::Array(list) => Value::List(list.into_iter().map(Self::plain).collect()),
        }
    }
}

/// The values as a tree. On failure, the key at fault and what is wrong with it.
pub(super) fn tree(values: Vec<(String, GgufValue)>) -> Result<Value, (String, Fault)> {
    let mut narrow = MOST_NARROW;
    let mut map = BTreeMap::new();
    for (key, value) in values {
        if let Err(fault) = value.check(&mut narrow) {
            return Err((key, fault));
        }
        map.insert(key, value.plain());
    }
    Ok(Value::Map(map))
}

fn ints<N: Into<i64>>(list: Vec<N>) -> Value {
    Value::Ints(list.into_iter().map(Into::into).collect())
}

fn check_signed(n: u64) -> Result<(), Fault> {
    if i64::try_from(n).is_ok() { Ok(()) } else { Err(Fault::Wide(n)) }
}

/// Takes elements from what the file may have.
fn spend(elements: usize, narrow: &mut usize) -> Result<(), Fault> {
    *narrow = narrow.checked_sub(elements).ok_or(Fault::Narrow(MOST_NARROW))?;
    Ok(())
}

fn deeper(depth: usize) -> Result<usize, Fault> {
    depth.checked_sub(1).ok_or(Fault::Depth(MOST_DEPTH))
}

fn number<N: Number>(id: u32, n: N, out: &mut Vec<u8>) {
    id.write(out);
    n.write(out);
}

fn numbers<N: Number>(id: u32, list: &[N], out: &mut Vec<u8>) {
    start(id, list.len(), out);
    list.iter().for_each(|n| n.write(out));
}

fn start(id: u32, len: usize, out: &mut Vec<u8>) {
    id.write(out);
    (len as u64).write(out);
}

pub(super) fn string(text: &str, out: &mut Vec<u8>) {
    (text.len() as u64).write(out);
    out.extend_from_slice(text.as_bytes());
}

// How GGUF numbers the types of values.
const U8: u32 = 0;
const I8: u32 = 1;
const U16: u32 = 2;
const I16: u32 = 3;
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STR: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;
const I64: u32 = 11;
const F64: u32 = 12;

/// Bytes of an empty array: element type and length.
const ARRAY_BYTES: usize = size_of::<u32>() + size_of::<u64>();
/// Bytes of the shortest key with its value: an empty name, a type, one byte.
pub(super) const PAIR_BYTES: usize = STRING_BYTES + size_of::<u32>() + 1;
/// How deep arrays may lie in arrays. Known files have none in another.
const MOST_DEPTH: usize = 4;
/// Elements of one or two bytes, and truth values, that all arrays of a file may have together:
/// in a tree each takes up to fifty times as much memory as in the file.
pub(super) const MOST_NARROW: usize = 1 << 20;
