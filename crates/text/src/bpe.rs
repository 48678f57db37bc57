//! Cutting ordinary text by ranked merges, with bytes for characters the vocabulary lacks.

use std::collections::HashSet;

use lapidary_core::TokenId;
use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use crate::specials::Specials;
use crate::tokenizer::TokenizerError;
use crate::vocabulary::{Kind, Parts, SPACE};

/// Merges over a vocabulary that holds all 256 bytes and no control token: every text has tokens,
/// and none of them is a control token.
pub(crate) struct Bpe(BPE);

impl Bpe {
    pub(crate) fn new(parts: &Parts<'_>, specials: &Specials) -> Result<Self, TokenizerError> {
        let bpe = BPE::builder()
            .vocab_and_merges(vocabulary(parts)?, merges(parts, specials)?)
            .byte_fallback(true)
            // Remembering pieces pays only for words that repeat, and here a piece is a whole text.
            .cache_capacity(0)
            .build();
        let refused = |err: Box<dyn std::error::Error + Send + Sync>| {
            unknown_merge(parts).unwrap_or_else(|| TokenizerError::Refused(err.to_string()))
        };
        Ok(Self(bpe.map_err(refused)?))
    }

    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<TokenId>) {
        let tokens = self.0.tokenize(&text.replace(' ', SPACE));
        let tokens = tokens.expect("every byte has a token, so every text has tokens");
        ids.extend(tokens.iter().map(|token| TokenId(token.id)));
    }

    pub(crate) fn token(&self, entry: &str) -> Option<TokenId> {
        self.0.token_to_id(entry).map(TokenId)
    }
}

/// All entries but the control tokens, each with its one id.
fn vocabulary(parts: &Parts<'_>) -> Result<Vocab, TokenizerError> {
    let mut bytes = [false; 256];
    let mut vocab = Vocab::with_capacity(parts.entries.len());
    for (entry, id) in parts.entries.iter().zip(0..).filter(|(e, _)| e.kind != Kind::Hole) {
        if vocab.insert(entry.text.to_string(), id).is_some() {
            let token = entry.text.to_string();
            return Err(TokenizerError::Clash { token, id: id as usize });
        }
        if let Kind::Byte(byte) = entry.kind {
            bytes[usize::from(byte)] = true;
        }
    }
    for entry in parts.entries.iter().filter(|entry| entry.kind == Kind::Control) {
        vocab.remove(entry.text.as_ref());
    }
    match (0..=u8::MAX).zip(bytes).find(|(_, present)| !present) {
        Some((byte, _)) => Err(TokenizerError::NoByte { byte }),
        None => Ok(vocab),
    }
}

/// The merges that can happen, in order. Those that touch a control token are left out: spelled
/// text must not become one.
fn merges(parts: &Parts<'_>, specials: &Specials) -> Result<Merges, TokenizerError> {
    let kind = |id: TokenId| parts.entries[id.index()].kind;
    let is_control = |text: &str| specials.token(text).is_some_and(|id| kind(id) == Kind::Control);
    let mergeable = parts.entries.iter().filter(|entry| entry.kind != Kind::Control);
    let longest = mergeable.map(|entry| entry.text.len()).max().unwrap_or(0);
    let mut joined = String::with_capacity(longest);
    let mut kept = Merges::with_capacity(parts.merges.len());
    for (index, (left, right)) in parts.merges.iter().enumerate() {
        joined.clear();
        joined.extend([left.as_ref(), right.as_ref()]);
        if is_control(left) || is_control(right) || is_control(&joined) {
            continue;
        }
        // The library joins in a buffer as long as the longest entry.
        if joined.len() > longest {
            return Err(joins_nothing(index, left, right));
        }
        kept.push((left.to_string(), right.to_string()));
    }
    Ok(kept)
}

fn joins_nothing(index: usize, left: &str, right: &str) -> TokenizerError {
    let reason = "does not join two tokens into a third";
    TokenizerError::Merge { index, merge: format!("{left} {right}"), reason }
}

/// The first merge with an entry that is not there. The library names the entry only.
fn unknown_merge(parts: &Parts<'_>) -> Option<TokenizerError> {
    let entries: HashSet<&str> = parts.entries.iter().map(|entry| entry.text.as_ref()).collect();
    let known = |text: &str| entries.contains(text);
    parts.merges.iter().enumerate().find_map(|(index, (left, right))| {
        let joins = known(left) && known(right) && known(&format!("{left}{right}"));
        (!joins).then(|| joins_nothing(index, left, right))
    })
}
