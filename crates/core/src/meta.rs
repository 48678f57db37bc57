//! Metadata of a model as a tree of plain values, wherever it came from.

use std::collections::BTreeMap;

/// A value of a metadata tree: the common shape of GGUF key-values and of `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// JSON `null`.
    Null,
    /// A truth value.
    Bool(bool),
    /// Any integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Str(String),
    /// A list of anything.
    List(Vec<Self>),
    /// A long list of numbers, kept compactly.
    Floats(Vec<f32>),
    /// A long list of integers, kept compactly.
    Ints(Vec<i64>),
    /// A list of strings, kept compactly.
    Strings(Strings),
    /// Named values. GGUF keys are kept whole: `gemma4.block_count` is one name.
    Map(BTreeMap<String, Self>),
}

impl Value {
    /// The member `key` of a map; `None` also when it is `null` or `self` is no map.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(map) = self else { return None };
        map.get(key).filter(|value| **value != Self::Null)
    }

    /// The truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(b) = self { Some(*b) } else { None }
    }

    /// The integer.
    pub fn as_int(&self) -> Option<i64> {
        if let Self::Int(n) = self { Some(*n) } else { None }
    }

    /// The integer, if it is an index or a count.
    pub fn as_usize(&self) -> Option<usize> {
        usize::try_from(self.as_int()?).ok()
    }

    /// The number, whole or not.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(x) => Some(*x),
            Self::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// The text.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(s) = self { Some(s) } else { None }
    }

    /// A list's integers, in whichever form the list is kept.
    pub fn to_ints(&self) -> Option<Vec<i64>> {
        match self {
            Self::Ints(ints) => Some(ints.clone()),
            Self::List(items) => items.iter().map(Self::as_int).collect(),
            _ => None,
        }
    }

    /// A list's truth values.
    pub fn to_bools(&self) -> Option<Vec<bool>> {
        if let Self::List(items) = self { items.iter().map(Self::as_bool).collect() } else { None }
    }

    /// A list's strings, in whichever form the list is kept.
    pub fn to_strings(&self) -> Option<Vec<&str>> {
        match self {
            Self::Strings(strings) => Some(strings.iter().collect()),
            Self::List(items) => items.iter().map(Self::as_str).collect(),
            _ => None,
        }
    }
}

/// Many strings in one allocation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    /// Appends a string.
    pub fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The `i`-th, if there are that many.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}
