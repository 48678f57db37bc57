//! What every token stands for, and the common shape in which vocabularies arrive.

use std::borrow::Cow;

use lapidary_core::TokenId;

use crate::specials::Specials;
use crate::tokenizer::TokenizerError;

/// How a space is written inside vocabulary entries.
pub(crate) const SPACE: &str = "▁";

/// One more than the highest id allowed: eight times the vocabulary of Gemma. It bounds the memory
/// that a damaged file can ask for.
pub(crate) const MAX_TOKENS: usize = 1 << 21;

/// Two entries to join.
pub(crate) type Merge<'a> = (Cow<'a, str>, Cow<'a, str>);

/// A vocabulary as read from a file, before it is checked as a whole.
pub(crate) struct Parts<'a> {
    /// By id.
    pub(crate) entries: Vec<Entry<'a>>,
    /// Pairs of entries to join, most urgent first.
    pub(crate) merges: Vec<Merge<'a>>,
    bos: TokenId,
    eos: TokenId,
}

/// One token as it is written in its file.
#[derive(Clone)]
pub(crate) struct Entry<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) kind: Kind,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Part of ordinary text.
    Ordinary,
    /// One byte, for characters the vocabulary lacks.
    Byte(u8),
    /// Structure: merging never yields it.
    Control,
    /// A unit of its own that merging may yield too, such as a run of newlines.
    Defined,
    /// An id that no token has.
    Hole,
}

impl Kind {
    fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Defined)
    }
}

impl Entry<'_> {
    /// The entry of an id that no token has.
    pub(crate) const HOLE: Self = Self { text: Cow::Borrowed(""), kind: Kind::Hole };
}

impl<'a> Parts<'a> {
    /// The beginning and end tokens become control tokens, whatever their file says.
    pub(crate) fn new(
        mut entries: Vec<Entry<'a>>,
        merges: Vec<Merge<'a>>,
        (bos, eos): (TokenId, TokenId),
    ) -> Result<Self, TokenizerError> {
        for (field, id) in [("bos token", bos), ("eos token", eos)] {
            match entries.get_mut(id.index()) {
                Some(entry) if entry.kind != Kind::Hole => entry.kind = Kind::Control,
                _ => {
                    let found = format!("id {}", id.0);
                    return Err(TokenizerError::NotInVocabulary { field, found });
                }
            }
        }
        Ok(Self { entries, merges, bos, eos })
    }

    /// The special tokens.
    pub(crate) fn specials(&self) -> Specials {
        let special = self.entries.iter().zip(0..).filter(|(entry, _)| entry.kind.is_special());
        let tokens = special.map(|(entry, id)| (entry.text.to_string(), TokenId(id)));
        let named = |id: TokenId| (self.entries[id.index()].text.as_ref(), id);
        Specials::new(tokens, named(self.bos), named(self.eos))
    }
}

/// Splits the `index`-th merge as one text: two entries with one space between. Entries write their
/// own spaces `▁`, but they may hold newlines.
pub(crate) fn split_merge((index, merge): (usize, &str)) -> Result<Merge<'_>, TokenizerError> {
    match merge.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left.into(), right.into()))
        }
        _ => {
            let reason = "is not two entries with one space between";
            Err(TokenizerError::Merge { index, merge: merge.to_owned(), reason })
        }
    }
}

/// The byte that `<0x..>` names.
pub(crate) fn byte_of(entry: &str) -> Option<u8> {
    let digits = entry.strip_prefix("<0x")?.strip_suffix('>')?;
    let upper = digits.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
    (digits.len() == 2 && upper).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The bytes and the kind of every token, in one allocation each.
pub(crate) struct Vocabulary {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    special: Vec<bool>,
}

impl Vocabulary {
    pub(crate) fn new(parts: &Parts<'_>) -> Self {
        let mut bytes = Vec::new();
        let mut ends = Vec::with_capacity(parts.entries.len());
        for entry in &parts.entries {
            match entry.kind {
                Kind::Byte(byte) => bytes.push(byte),
                _ => bytes.extend_from_slice(entry.text.replace(SPACE, " ").as_bytes()),
            }
            ends.push(bytes.len());
        }
        let special = parts.entries.iter().map(|entry| entry.kind.is_special()).collect();
        Self { bytes, ends, special }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn bytes(&self, id: TokenId) -> &[u8] {
        let Some(end) = self.ends.get(id.index()) else { return &[] };
        let start = id.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..*end]
    }

    pub(crate) fn is_special(&self, id: TokenId) -> bool {
        self.special.get(id.index()).copied().unwrap_or(false)
    }
}
