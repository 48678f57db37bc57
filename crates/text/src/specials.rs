//! The spellings that become one token each, and finding them in text.

use std::collections::HashMap;

use lapidary_core::TokenId;

/// Special tokens by spelling. At each place the longest spelling wins, and the leftmost place
/// wins over later ones.
#[derive(Clone, Debug)]
pub struct Specials {
    tokens: HashMap<String, TokenId>,
    /// By first byte of a spelling: the lengths there are, longest first.
    lengths: Box<[Vec<usize>; 256]>,
    bos: (String, TokenId),
    eos: (String, TokenId),
}

/// A special token found in a text, as a byte range of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) token: TokenId,
}

impl Specials {
    /// From spellings and ids, of which `bos` and `eos` are two. Empty spellings are left out: they
    /// occur everywhere.
    pub fn new(
        tokens: impl IntoIterator<Item = (String, TokenId)>,
        bos: (&str, TokenId),
        eos: (&str, TokenId),
    ) -> Self {
        let own = |(text, token): (&str, TokenId)| (text.to_owned(), token);
        let (bos, eos) = (own(bos), own(eos));
        let mut tokens: HashMap<_, _> = tokens.into_iter().collect();
        tokens.extend([bos.clone(), eos.clone()]);
        tokens.remove("");
        let lengths = lengths_by_first_byte(tokens.keys());
        Self { tokens, lengths, bos, eos }
    }

    /// The token with this spelling.
    pub fn token(&self, spelling: &str) -> Option<TokenId> {
        let first = *spelling.as_bytes().first()?;
        // Most texts that are asked about are ruled out here, without hashing them.
        let may_be = self.lengths[usize::from(first)].contains(&spelling.len());
        if may_be { self.tokens.get(spelling).copied() } else { None }
    }

    /// All spellings, in no order.
    pub fn spellings(&self) -> impl Iterator<Item = &str> {
        self.tokens.keys().map(String::as_str)
    }

    /// The beginning token.
    pub fn bos(&self) -> TokenId {
        self.bos.1
    }

    /// The end token.
    pub fn eos(&self) -> TokenId {
        self.eos.1
    }

    /// How the beginning token is spelled: a template's `bos_token`.
    pub fn bos_text(&self) -> &str {
        &self.bos.0
    }

    /// How the end token is spelled: a template's `eos_token`.
    pub fn eos_text(&self) -> &str {
        &self.eos.0
    }

    /// The first special token in `text`.
    pub(crate) fn find(&self, text: &str) -> Option<Found> {
        text.bytes().enumerate().find_map(|(start, byte)| {
            self.lengths[usize::from(byte)].iter().find_map(|length| {
                let end = start + length;
                let token = *self.tokens.get(text.get(start..end)?)?;
                Some(Found { start, end, token })
            })
        })
    }
}

fn lengths_by_first_byte<'a>(
    spellings: impl Iterator<Item = &'a String>,
) -> Box<[Vec<usize>; 256]> {
    let mut lengths = Box::new([const { Vec::new() }; 256]);
    for spelling in spellings {
        lengths[usize::from(spelling.as_bytes()[0])].push(spelling.len());
    }
    for of_byte in lengths.iter_mut() {
        of_byte.sort_unstable_by(|a: &usize, b| b.cmp(a));
        of_byte.dedup();
    }
    lengths
}
