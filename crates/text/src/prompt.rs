//! A rendered conversation whose special tokens are known to be the template's own.

use lapidary_core::TokenId;

use crate::shield::unmark;
use crate::specials::Specials;
use crate::tokenizer::{Control, Tokenizer};

/// What a model is given to continue, in pieces.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Prompt {
    pieces: Vec<Piece>,
}

/// A stretch of a prompt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// The spelling of one special token, which the template wrote.
    Special(String),
    /// Text to be spelled out, whoever wrote it.
    Text(String),
}

impl Prompt {
    /// Takes apart what a template wrote from marked text.
    pub(crate) fn from_marked(rendered: &str, specials: &Specials) -> Self {
        let mut pieces = Vec::new();
        let text = |marked: &str| match unmark(marked) {
            text if text.is_empty() => None,
            text => Some(Piece::Text(text)),
        };
        let mut rest = rendered;
        while let Some(found) = specials.find(rest) {
            pieces.extend(text(&rest[..found.start]));
            pieces.push(Piece::Special(rest[found.start..found.end].to_owned()));
            rest = &rest[found.end..];
        }
        pieces.extend(text(rest));
        Self { pieces }
    }

    /// The pieces in order; no text is empty and no two texts are neighbours.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Exactly what the template wrote.
    pub fn text(&self) -> String {
        self.pieces.iter().map(Piece::text).collect()
    }

    /// The tokens, beginning with exactly one beginning token.
    pub fn encode(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let ids: Vec<_> = self.pieces.iter().flat_map(|piece| piece.encode(tokenizer)).collect();
        tokenizer.with_bos(&ids)
    }
}

impl Piece {
    fn text(&self) -> &str {
        let (Self::Special(text) | Self::Text(text)) = self;
        text
    }

    fn encode(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        match self {
            Self::Special(text) => tokenizer.encode(text, Control::Honour),
            Self::Text(text) => tokenizer.encode(text, Control::Spell),
        }
    }
}
