//! A vocabulary with a way of cutting text into it.

use lapidary_core::{TokenId, Value};

use crate::TextStream;
use crate::bpe::Bpe;
use crate::scored::Scored;
use crate::specials::Specials;
use crate::tokenizer_gguf::Ranked;
use crate::vocabulary::{Parts, Vocabulary};
use crate::{tokenizer_gguf, tokenizer_json};

/// Turns text into tokens and tokens into bytes.
///
/// Laws: a token below [`len`](Self::len) always means the same bytes; the bytes of
/// `encode(text, Control::Spell)` are those of `text` with every `▁` read as a space; spelling never
/// yields a control token.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    specials: Specials,
    pieces: Pieces,
}

/// How to read `<special tokens>` that occur in text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Control {
    /// As the special tokens they spell. Only for text a template or an operator wrote.
    Honour,
    /// As the characters they are made of. For everything a user wrote.
    Spell,
}

/// The ways of cutting ordinary text, one for each kind of vocabulary.
enum Pieces {
    /// Ranked merges, as in Gemma 4.
    Bpe(Bpe),
    /// Scores, as in Gemma 3's GGUF files.
    Scored(Scored),
}

impl Pieces {
    fn encode(&self, text: &str, ids: &mut Vec<TokenId>) {
        match self {
            Self::Bpe(bpe) => bpe.encode(text, ids),
            Self::Scored(scored) => scored.encode(text, ids),
        }
    }
}

impl Tokenizer {
    /// Reads the text of a Hugging Face `tokenizer.json`. `bos` and `eos` are the tokens that its
    /// `tokenizer_config.json` names.
    ///
    /// # Errors
    /// The text is malformed, contradicts itself, or describes another kind of tokenizer.
    pub fn from_json(text: &str, bos: &str, eos: &str) -> Result<Self, TokenizerError> {
        Self::new(&tokenizer_json::read(text, bos, eos)?, Ranked::ByMerges)
    }

    /// Reads the `tokenizer.ggml.*` keys of GGUF metadata.
    ///
    /// # Errors
    /// The metadata is incomplete, contradicts itself, or describes another kind of tokenizer.
    pub fn from_metadata(metadata: &Value) -> Result<Self, TokenizerError> {
        let (parts, ranked) = tokenizer_gguf::read(metadata)?;
        Self::new(&parts, ranked)
    }

    fn new(parts: &Parts<'_>, ranked: Ranked) -> Result<Self, TokenizerError> {
        let specials = parts.specials();
        let pieces = match ranked {
            Ranked::ByMerges => Pieces::Bpe(Bpe::new(parts, &specials)?),
            Ranked::ByScores(scores) => Pieces::Scored(Scored::new(parts, scores)?),
        };
        Ok(Self { vocabulary: Vocabulary::new(parts), specials, pieces })
    }

    /// The tokens of `text`, nothing added: no beginning token, no leading space.
    pub fn encode(&self, text: &str, control: Control) -> Vec<TokenId> {
        let mut ids = Vec::new();
        match control {
            Control::Spell => self.pieces.encode(text, &mut ids),
            Control::Honour => self.honour(text, &mut ids),
        }
        ids
    }

    fn honour(&self, text: &str, ids: &mut Vec<TokenId>) {
        let mut rest = text;
        while let Some(found) = self.specials.find(rest) {
            self.pieces.encode(&rest[..found.start], ids);
            ids.push(found.token);
            rest = &rest[found.end..];
        }
        self.pieces.encode(rest, ids);
    }

    /// `ids` with exactly one beginning token at the front: a missing one is added, repeats are
    /// dropped.
    pub fn with_bos(&self, ids: &[TokenId]) -> Vec<TokenId> {
        let own = ids.iter().take_while(|id| **id == self.bos()).count();
        let mut whole = Vec::with_capacity(ids.len() + 1);
        whole.push(self.bos());
        whole.extend_from_slice(&ids[own..]);
        whole
    }

    /// The bytes a token stands for; they may be part of a character. Special tokens stand for
    /// their spelling. Empty for an id that names no token.
    pub fn bytes(&self, id: TokenId) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// The text of `ids`, with a replacement character for each broken one.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let mut stream = TextStream::default();
        let mut text: String = ids.iter().map(|id| stream.push(self.bytes(*id))).collect();
        text.push_str(&stream.finish());
        text
    }

    /// Whether [`Control::Honour`] recognises this token's spelling as a unit.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.vocabulary.is_special(id)
    }

    /// The token with this entry in the vocabulary, where a space is written `▁`.
    pub fn token(&self, entry: &str) -> Option<TokenId> {
        self.specials.token(entry).or_else(|| match &self.pieces {
            Pieces::Bpe(bpe) => bpe.token(entry),
            Pieces::Scored(scored) => scored.token(entry),
        })
    }

    /// One more than the highest id.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a vocabulary without its 256 bytes is refused"
    )]
    pub fn len(&self) -> usize {
        self.vocabulary.len()
    }

    /// The token that begins every sequence.
    pub fn bos(&self) -> TokenId {
        self.specials.bos()
    }

    /// The token that ends a text.
    pub fn eos(&self) -> TokenId {
        self.specials.eos()
    }

    /// The tokens that [`Control::Honour`] recognises, with their spellings.
    pub fn specials(&self) -> &Specials {
        &self.specials
    }
}

/// Why a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The text is not JSON of the expected shape.
    #[error("`{field}` of tokenizer.json cannot be read: {source}; get the file again")]
    Json {
        /// Which part of the file.
        field: &'static str,
        /// What is wrong and where in that part.
        source: serde_json::Error,
    },
    /// Something necessary is absent or has another type.
    #[error("tokenizer field `{field}` is missing or not {expected}; convert the model again")]
    Field {
        /// The field or metadata key.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The tokenizer works in a way this crate does not know.
    #[error("tokenizer field `{field}` is {found}, which is not supported; supported: {supported}")]
    Unsupported {
        /// The field or metadata key.
        field: &'static str,
        /// What it holds.
        found: String,
        /// What it may hold.
        supported: &'static str,
    },
    /// Two lists that belong together have different lengths.
    #[error("`{field}` has {found} entries for {tokens} tokens; convert the model again")]
    Length {
        /// The metadata key.
        field: &'static str,
        /// Its length.
        found: usize,
        /// The length of the vocabulary.
        tokens: usize,
    },
    /// An id is so large that the file must be damaged.
    #[error("token {token:?} has id {id}, and ids must be below {limit}; get the file again")]
    IdTooLarge {
        /// The token's text.
        token: String,
        /// The id it claims.
        id: u64,
        /// One more than the highest id allowed.
        limit: usize,
    },
    /// One text has two ids, or one id two texts.
    #[error("token {token:?} clashes with another entry at id {id}; convert the model again")]
    Clash {
        /// The text that comes second.
        token: String,
        /// The id at which the clash was noticed.
        id: usize,
    },
    /// A token that text may need is not there.
    #[error("the vocabulary has no token <0x{byte:02X}>, so some text would have no tokens")]
    NoByte {
        /// The byte without a token.
        byte: u8,
    },
    /// A field names a token that does not exist.
    #[error("`{field}` names {found}, which is not in the vocabulary; convert the model again")]
    NotInVocabulary {
        /// The field or metadata key.
        field: &'static str,
        /// The token or id that was named.
        found: String,
    },
    /// A merge is not a pair, or does not join two tokens into a third.
    #[error("merge {index} ({merge:?}) {reason}; convert the model again")]
    Merge {
        /// Position in the list of merges.
        index: usize,
        /// The merge as written.
        merge: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The merging library refused the vocabulary.
    #[error("`merges` do not fit the vocabulary: {0}; convert the model again")]
    Refused(String),
}
