//! Cutting ordinary text by scores: of all neighbours that join to an entry, the pair whose entry
//! scores highest joins first, the leftmost of equals. Characters that no entry holds become bytes.
//!
//! This is the SentencePiece form of a vocabulary, which GGUF files of Gemma 3 carry without
//! merges. It is ours because the library would need half a million merges derived first, which
//! takes longer than the whole start may.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use lapidary_core::TokenId;

use crate::tokenizer::TokenizerError;
use crate::vocabulary::{Kind, Parts, SPACE};

/// Entries with scores, units that are never cut, and all 256 bytes.
pub(crate) struct Scored {
    ids: HashMap<Box<str>, TokenId>,
    scores: Vec<f32>,
    /// Units by their first character, longest first.
    units: HashMap<char, Vec<(Box<str>, TokenId)>>,
    bytes: Box<[TokenId; 256]>,
}

/// A symbol of the text under way: a stretch of it and its neighbours. Empty once it has been
/// joined to the one before it.
struct Symbol {
    start: usize,
    len: usize,
    before: Option<usize>,
    after: Option<usize>,
}

/// Two neighbours that join to an entry.
#[derive(PartialEq)]
struct Join {
    score: f32,
    left: usize,
    /// Bytes of both together: the join is stale if they have changed.
    len: usize,
}

impl Eq for Join {}

impl Ord for Join {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Scored {
    pub(crate) fn new(parts: &Parts<'_>, scores: Vec<f32>) -> Result<Self, TokenizerError> {
        let mut bytes = [None; 256];
        let mut ids = HashMap::with_capacity(parts.entries.len());
        let mut units: HashMap<char, Vec<(Box<str>, TokenId)>> = HashMap::new();
        for (entry, id) in parts.entries.iter().zip((0..).map(TokenId)) {
            let text: Box<str> = entry.text.as_ref().into();
            match (entry.kind, text.chars().next()) {
                (Kind::Ordinary, Some(_)) => {
                    ids.entry(text).or_insert(id);
                }
                (Kind::Defined, Some(first)) => units.entry(first).or_default().push((text, id)),
                (Kind::Byte(byte), _) => bytes[usize::from(byte)] = Some(id),
                _ => {}
            }
        }
        units.values_mut().for_each(|list| list.sort_by_key(|(text, _)| text.len()));
        units.values_mut().for_each(|list| list.reverse());
        let mut all = [TokenId(0); 256];
        for ((own, found), byte) in all.iter_mut().zip(bytes).zip(0..=u8::MAX) {
            *own = found.ok_or(TokenizerError::NoByte { byte })?;
        }
        Ok(Self { ids, scores, units, bytes: Box::new(all) })
    }

    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<TokenId>) {
        let text = text.replace(' ', SPACE);
        let mut start = 0;
        let mut at = 0;
        while let Some(next) = text[at..].chars().next() {
            if let Some((unit, id)) = self.unit_at(next, &text[at..]) {
                self.join(&text[start..at], ids);
                ids.push(id);
                at += unit;
                start = at;
            } else {
                at += next.len_utf8();
            }
        }
        self.join(&text[start..], ids);
    }

    pub(crate) fn token(&self, entry: &str) -> Option<TokenId> {
        let first = entry.chars().next()?;
        let unit = self.units.get(&first).and_then(|list| list.iter().find(|(u, _)| **u == *entry));
        unit.map(|(_, id)| *id).or_else(|| self.ids.get(entry).copied())
    }

    /// The longest unit that `text` begins with: its length and token.
    fn unit_at(&self, first: char, text: &str) -> Option<(usize, TokenId)> {
        let list = self.units.get(&first)?;
        let found = list.iter().find(|(unit, _)| text.starts_with(&**unit));
        found.map(|(unit, id)| (unit.len(), *id))
    }

    /// Joins the characters of a text without units, then names what is left.
    fn join(&self, text: &str, ids: &mut Vec<TokenId>) {
        let mut symbols = characters(text);
        let mut joins = BinaryHeap::new();
        for left in 0..symbols.len() {
            self.consider(text, &symbols, left, &mut joins);
        }
        while let Some(Join { left, len, .. }) = joins.pop() {
            let Some(right) = symbols[left].after else { continue };
            let together = symbols[left].len + symbols[right].len;
            if symbols[left].len == 0 || together != len {
                continue;
            }
            symbols[left].len = together;
            symbols[left].after = symbols[right].after;
            symbols[right].len = 0;
            if let Some(after) = symbols[left].after {
                symbols[after].before = Some(left);
            }
            if let Some(before) = symbols[left].before {
                self.consider(text, &symbols, before, &mut joins);
            }
            self.consider(text, &symbols, left, &mut joins);
        }
        for Symbol { start, len, .. } in symbols.iter().filter(|symbol| symbol.len > 0) {
            self.name(&text[*start..start + len], ids);
        }
    }

    /// Notes that `left` and its neighbour join, if they do.
    fn consider(&self, text: &str, symbols: &[Symbol], left: usize, joins: &mut BinaryHeap<Join>) {
        let Symbol { start, len, after: Some(after), .. } = symbols[left] else { return };
        let len = len + symbols[after].len;
        if let Some(id) = self.ids.get(&text[start..start + len]) {
            joins.push(Join { score: self.scores[id.index()], left, len });
        }
    }

    fn name(&self, symbol: &str, ids: &mut Vec<TokenId>) {
        match self.ids.get(symbol) {
            Some(id) => ids.push(*id),
            None => ids.extend(symbol.bytes().map(|byte| self.bytes[usize::from(byte)])),
        }
    }
}

/// One symbol per character.
fn characters(text: &str) -> Vec<Symbol> {
    let count = text.chars().count();
    let symbol = |(i, (start, c)): (usize, (usize, char))| Symbol {
        start,
        len: c.len_utf8(),
        before: i.checked_sub(1),
        after: (i + 1 < count).then_some(i + 1),
    };
    text.char_indices().enumerate().map(symbol).collect()
}
