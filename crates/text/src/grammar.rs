//! What texts must look like: schemas, expressions and grammars, made ready for a vocabulary.
//!
//! Whatever cannot be enforced is refused: a text that was asked to conform conforms.

use std::sync::Arc;
use std::thread;

use lapidary_core::{TokenId, TokenSet};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::gbnf::{self, BadGbnf};
use crate::guide::{Guide, Marks};
use crate::{TextStream, Tokenizer};

/// What a text must look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rules<'a> {
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema(&'a Value),
    /// All of the text matches this expression, in the syntax of Rust's `regex`.
    Regex(&'a str),
    /// A context-free grammar in the syntax of Lark, as llguidance reads it; begins with `start`.
    Lark(&'a str),
    /// A context-free grammar in the syntax of llama.cpp; begins with `root`.
    Gbnf(&'a str),
}

/// Whether a thought comes before the text that must conform.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Thinking {
    /// No: the first token conforms.
    Never,
    /// One may: the rules hold from the first token, or from the end of the thought that it opens.
    First,
    /// The prompt has opened one: the rules hold from its end.
    Open,
}

impl Thinking {
    /// `Open` if a prompt ends inside a thought, else what was meant.
    pub fn after(self, prompt: &[TokenId], tokenizer: &Tokenizer) -> Self {
        let special = |spelling| tokenizer.specials().token(spelling);
        let Some((open, close)) = special(OPEN).zip(special(CLOSE)) else { return self };
        let last = prompt.iter().rev().find(|token| **token == open || **token == close);
        if last == Some(&open) { Self::Open } else { self }
    }
}

/// Why rules cannot be enforced.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GrammarError {
    /// A part of a schema means nothing here.
    #[error(
        "the JSON schema cannot be enforced: {reason}; leave that part out or say it another way"
    )]
    Schema {
        /// Which part, and why.
        reason: String,
    },
    /// The expression is none.
    #[error("the regular expression cannot be used: {reason}")]
    Regex {
        /// What is wrong with it.
        reason: String,
    },
    /// The grammar is none.
    #[error("the Lark grammar cannot be used: {reason}")]
    Lark {
        /// What is wrong with it, and where.
        reason: String,
    },
    /// The grammar is none.
    #[error(transparent)]
    Gbnf(#[from] BadGbnf),
    /// Longer than anyone should follow.
    #[error("a grammar has {bytes} bytes, and may have {most}; say it shorter")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most it may have.
        most: usize,
    },
    /// The system gave no thread to compile in.
    #[error("no thread to read the grammar in: {0}")]
    NoThread(String),
    /// A thought was said to be open, but the vocabulary knows no thoughts.
    #[error("the model's vocabulary has no token that closes a thought, so no thought can be open")]
    NoThoughts,
}

/// Makes rules ready for one vocabulary.
pub struct Grammars {
    factory: ParserFactory,
    /// Tokens of ordinary text.
    plain: Arc<TokenSet>,
    /// The tokens that open and close a thought, where there are such.
    channel: Option<(TokenId, TokenId)>,
}

/// The longest grammar, in bytes.
const LONGEST: usize = 256 << 10;
/// Stack to compile in, in bytes: chains of references that fill [`LONGEST`] are tested with it. Only
/// what is used becomes memory.
const DEEP: usize = 512 << 20;
/// What opens a thought.
const OPEN: &str = "<|channel>";
/// What closes it.
const CLOSE: &str = "<channel|>";
/// White space between the parts of JSON: at most a space, or a newline and an indent. Without a
/// bound a model can go on with it for ever.
const WHITE_SPACE: &str = r" |\n[ \t]{0,20}";

impl Grammars {
    /// Reads the vocabulary, which takes a while if it is large.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let ids = || (0..tokenizer.len() as u32).map(TokenId);
        let words: Vec<_> = ids().map(|id| word(tokenizer, id)).collect();
        let info = TokRxInfo::new(words.len() as u32, tokenizer.eos().0);
        // Nothing is ever forced: among the tokens that conform, the model chooses.
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices);
        let mut factory = factory.expect("the library's own expressions are well formed");
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        let special = |spelling| tokenizer.specials().token(spelling);
        let plain = |id: &TokenId| !is_marked(&words[id.index()]) && !words[id.index()].is_empty();
        Self {
            plain: Arc::new(ids().filter(plain).collect()),
            channel: special(OPEN).zip(special(CLOSE)),
            factory,
        }
    }

    /// The beginning of a text under these rules.
    ///
    /// # Errors
    /// [`GrammarError`], naming what cannot be enforced.
    pub fn compile(&self, rules: Rules<'_>, thinking: Thinking) -> Result<Guide, GrammarError> {
        check_length(rules)?;
        let grammar = match rules {
            Rules::JsonObject => schema(&json!({ "type": "object" }))?,
            Rules::JsonSchema(value) => schema(value)?,
            Rules::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Rules::Lark(lark) => TopLevelGrammar::from_lark(lark.to_owned()),
            Rules::Gbnf(text) => TopLevelGrammar::from_lark(gbnf::to_lark(text)?),
        };
        let parser = on_a_deep_stack(|| self.factory.create_parser(grammar))?;
        let parser = parser.map_err(|error| refusal(rules, &error.to_string()))?;
        let matcher = Matcher::new(Ok(parser));
        let marks = match (thinking, self.channel) {
            (Thinking::Open, None) => return Err(GrammarError::NoThoughts),
            (Thinking::Never, _) | (_, None) => None,
            (_, Some((open, close))) => Some(Marks { open, close, plain: self.plain.clone() }),
        };
        Ok(Guide::new(matcher, marks, thinking))
    }
}

fn check_length(rules: Rules<'_>) -> Result<(), GrammarError> {
    let bytes = match rules {
        Rules::JsonObject => 0,
        Rules::JsonSchema(value) => value.to_string().len(),
        Rules::Regex(text) | Rules::Lark(text) | Rules::Gbnf(text) => text.len(),
    };
    if bytes > LONGEST { Err(GrammarError::TooLong { bytes, most: LONGEST }) } else { Ok(()) }
}

/// Compiling goes as deep as references follow each other, and a stack that ends ends the process.
/// Following a compiled grammar does not.
fn on_a_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, GrammarError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(DEEP).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| GrammarError::NoThread(e.to_string()))?;
        thread.join().map_err(|_| GrammarError::NoThread("the compiler panicked".to_owned()))
    })
}

/// A token as the grammar sees it. Special tokens cannot be spelled: no text has the marker, so
/// only a grammar that names them allows them. White space is the same whatever its token.
fn word(tokenizer: &Tokenizer, id: TokenId) -> Vec<u8> {
    let bytes = tokenizer.bytes(id);
    if tokenizer.is_special(id) && !bytes.iter().all(u8::is_ascii_whitespace) {
        return [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat();
    }
    // A byte that is part of no character.
    if is_marked(bytes) { Vec::new() } else { bytes.to_vec() }
}

fn is_marked(word: &[u8]) -> bool {
    word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER)
}

/// A schema with our own settings.
fn schema(value: &Value) -> Result<TopLevelGrammar, GrammarError> {
    let refuse = |reason: &str| Err(GrammarError::Schema { reason: reason.to_owned() });
    let mut schema = match value {
        Value::Object(members) => members.clone(),
        Value::Bool(true) => serde_json::Map::new(),
        Value::Bool(false) => return refuse("`false` allows nothing"),
        _ => return refuse("it must be an object or `true`"),
    };
    if schema.contains_key("x-guidance") {
        return refuse("`x-guidance` is not supported");
    }
    schema.insert("x-guidance".to_owned(), json!({ "whitespace_pattern": WHITE_SPACE }));
    Ok(TopLevelGrammar::from_json_schema(Value::Object(schema)))
}

/// The library's words for what it refuses, cut to the first line and to a bearable length.
fn refusal(rules: Rules<'_>, error: &str) -> GrammarError {
    const MOST: usize = 300;
    let mut line = TextStream::default();
    let first = error.lines().next().unwrap_or(error);
    let reason = line.push(&first.as_bytes()[..first.len().min(MOST)]);
    match rules {
        Rules::JsonObject | Rules::JsonSchema(_) => GrammarError::Schema { reason },
        Rules::Regex(_) => GrammarError::Regex { reason },
        Rules::Lark(_) => GrammarError::Lark { reason },
        Rules::Gbnf(_) => GrammarError::Gbnf(BadGbnf { line: 1, reason }),
    }
}
