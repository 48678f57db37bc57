//! What is asked of the engine, and what is told to whoever asked.

use std::sync::Arc;

use lapidary_core::{Constraint, TokenId};
use thiserror::Error;

use crate::soft::{self, BadSoft, Soft};
use crate::{BadSampling, Limits, Logprobs, Sampling};

/// Names a request for as long as it lives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// Most alternatives to a token that are reported.
const MOST_ALTERNATIVES: usize = 1024;
/// The most texts that one request may ask for.
const MOST_SAMPLES: u32 = 128;

/// How the hidden states of a text become one vector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pooling {
    /// That of the last token.
    Last,
    /// The mean over all tokens.
    Mean,
}

/// A text to be continued, or to be made a vector of.
#[derive(Clone, Debug)]
pub struct Request {
    /// Chosen by the caller; no other live request has it.
    pub id: RequestId,
    /// At least one token, and fewer than the context holds.
    pub prompt: Vec<TokenId>,
    /// Places of the prompt where rows of numbers stand instead of tokens: pictures. In any order,
    /// disjoint; they may touch. Each is read in one step.
    pub soft: Vec<Soft>,
    /// The most tokens to produce; `None` goes on to a stop token or the end of the context.
    pub max_tokens: Option<u32>,
    /// Stop tokens are not chosen before the text has this many tokens. A grammar goes before: a
    /// text that it ends ends.
    pub min_tokens: u32,
    /// Tokens that end the text. The one that came up is no part of the text: it is reported in
    /// [`Finish::Stop`] and never as an [`Event::Token`].
    pub stop: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// How many texts to produce, at least one. They share the reading of the prompt; the n-th
    /// (from 0) is the text of a request for one whose [`Sampling::sample`] is higher by n.
    pub samples: u32,
    /// For [`Priority`](crate::Priority): higher goes first.
    pub priority: i32,
    /// Report each token of the text with its log-probability and those of this many of the
    /// likeliest tokens. A stop token is no part of the text, and has none.
    pub logprobs: Option<usize>,
    /// Report the same for the tokens of the prompt, all but the first, which nothing precedes.
    /// Such a prompt is read from its start, even if a slot holds part of it.
    pub prompt_logprobs: Option<usize>,
    /// What the text must conform to, with whatever of it the prompt already holds behind it.
    /// Stop tokens are chosen only where it allows an end.
    pub grammar: Option<Arc<dyn Constraint>>,
    /// The most guesses in a row for this request, if fewer than the engine's; zero for none.
    pub drafts: Option<usize>,
    /// Make a vector of the prompt instead of continuing it. Such a request has no text.
    pub pool: Option<Pooling>,
}

impl Request {
    /// A greedy continuation of `prompt` without bounds of its own.
    pub fn new(id: RequestId, prompt: Vec<TokenId>) -> Self {
        Self {
            id,
            prompt,
            soft: Vec::new(),
            max_tokens: None,
            min_tokens: 0,
            stop: Vec::new(),
            sampling: Sampling::default(),
            samples: 1,
            priority: 0,
            logprobs: None,
            prompt_logprobs: None,
            grammar: None,
            drafts: None,
            pool: None,
        }
    }

    /// A vector of `prompt`.
    pub fn embedding(id: RequestId, prompt: Vec<TokenId>, pool: Pooling) -> Self {
        Self { pool: Some(pool), ..Self::new(id, prompt) }
    }

    /// Whether one of its texts is over before it begins.
    pub(crate) fn asks_for_nothing(&self, sample: u32) -> bool {
        let of_prompt = sample == 0 && self.prompt_logprobs.is_some();
        self.max_tokens == Some(0) && !of_prompt && self.pool.is_none()
    }

    /// Refuses settings that contradict each other or their ranges.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), Refused> {
        soft::check(&self.soft, self.prompt.len(), limits.block())?;
        let of_texts = [
            ("logprobs", self.logprobs.is_some()),
            ("prompt_logprobs", self.prompt_logprobs.is_some()),
            ("grammar", self.grammar.is_some()),
            ("samples", self.samples > 1),
        ];
        let given = of_texts.into_iter().find(|(_, given)| *given && self.pool.is_some());
        if let Some((setting, _)) = given {
            return Err(Refused::NoText { setting });
        }
        for (setting, asked) in
            [("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)]
        {
            if let Some(asked) = asked.filter(|asked| *asked > MOST_ALTERNATIVES) {
                return Err(Refused::Alternatives { setting, asked, most: MOST_ALTERNATIVES });
            }
        }
        if !(1..=MOST_SAMPLES).contains(&self.samples) {
            return Err(Refused::Samples { samples: self.samples, most: MOST_SAMPLES });
        }
        match self.max_tokens {
            Some(max) if self.pool.is_none() && self.min_tokens > max => {
                Err(Refused::MinTokens { min: self.min_tokens, max })
            }
            _ => Ok(self.sampling.check()?),
        }
    }
}

/// Why a request was not taken.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Refused {
    /// Nothing to continue.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// No room for even one token of text.
    #[error(
        "the prompt has {tokens} tokens and a sequence may grow to {context}: shorten it or raise the context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens a sequence may grow to.
        context: u32,
    },
    /// Every slot is taken and the queue is full.
    #[error("{running} requests are running and {waiting} waiting: try again later")]
    Busy {
        /// Requests that hold a slot.
        running: usize,
        /// Requests that wait for one.
        waiting: usize,
    },
    /// No texts, or very many.
    #[error("{samples} samples were asked for: give 1 to {most}")]
    Samples {
        /// Texts asked for.
        samples: u32,
        /// The most that one request may ask for.
        most: u32,
    },
    /// A live request has the same id.
    #[error("a request with id {} is still alive: choose another id", id.0)]
    IdInUse {
        /// The id.
        id: RequestId,
    },
    /// The sampling settings make no sense.
    #[error(transparent)]
    Sampling(#[from] BadSampling),
    /// Soft ranges make no sense, or do not fit into a step.
    #[error(transparent)]
    Soft(#[from] BadSoft),
    /// More tokens are called for than are allowed.
    #[error("min_tokens is {min}, but max_tokens is {max}: give no more than that")]
    MinTokens {
        /// The fewest tokens of the text.
        min: u32,
        /// The most.
        max: u32,
    },
    /// More alternatives are asked for than anyone reads.
    #[error("`{setting}` asks for {asked} alternatives: give at most {most}")]
    Alternatives {
        /// Which setting.
        setting: &'static str,
        /// How many it asks for.
        asked: usize,
        /// How many may be asked for.
        most: usize,
    },
    /// An embedding has no text for this setting to apply to.
    #[error("an embedding has no text, so `{setting}` means nothing: leave it out")]
    NoText {
        /// Which setting.
        setting: &'static str,
    },
}

/// Why a request ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Finish {
    /// One of its stop tokens came up.
    Stop {
        /// Which one. It is not part of the text.
        token: TokenId,
    },
    /// `max_tokens` or the context is used up.
    Length,
    /// Nothing is left to do: the grammar allows nothing more, or the embedding is made.
    Complete,
    /// The caller lost interest.
    Cancelled,
    /// Something broke; the text so far is sound, and ends here.
    Failed(String),
}

/// What a request's owner gets to see: at most one `Warm`, at most one `Prompt`, then for each
/// sample any number of tokens, or one `Embedding`, and one `Finished`.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first tokens of the prompt were found in the cache, or among saved prefixes.
    Warm {
        /// Whose.
        id: RequestId,
        /// How many tokens need not be read.
        tokens: u32,
    },
    /// The prompt has been read, and how likely it was is known.
    Prompt {
        /// Whose.
        id: RequestId,
        /// Of the second token of the prompt, the third, and so on.
        logprobs: Vec<Logprobs>,
    },
    /// The vector asked for.
    Embedding {
        /// Whose.
        id: RequestId,
        /// As many as a hidden state has, of length one.
        values: Vec<f32>,
    },
    /// The next token of the text.
    Token {
        /// Whose.
        id: RequestId,
        /// Which of the request's texts, from 0.
        sample: u32,
        /// Which.
        token: TokenId,
        /// How likely it and others were, if the request asked.
        logprobs: Option<Box<Logprobs>>,
        /// What became of the text's guesses, up to the step that yielded the token.
        guesses: Guesses,
    },
    /// The last event of a sample.
    Finished {
        /// Whose.
        id: RequestId,
        /// Which of the request's texts, from 0.
        sample: u32,
        /// Why.
        finish: Finish,
        /// What became of the text's guesses.
        guesses: Guesses,
    },
}

/// Guesses of a text that were run, and what became of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Guesses {
    /// Those that became text.
    pub accepted: u32,
    /// Those that did not.
    pub rejected: u32,
}

impl Guesses {
    /// Another `run` guesses, of which `accepted` became text.
    pub(crate) fn note(&mut self, run: usize, accepted: usize) {
        self.accepted += accepted as u32;
        self.rejected += (run - accepted) as u32;
    }
}

impl Event {
    /// The request that the event belongs to.
    pub fn id(&self) -> RequestId {
        match self {
            Self::Warm { id, .. }
            | Self::Prompt { id, .. }
            | Self::Embedding { id, .. }
            | Self::Token { id, .. }
            | Self::Finished { id, .. } => *id,
        }
    }
}
