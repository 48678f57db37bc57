//! What is asked of the engine, and what is told to whoever asked.

use lapidary_core::TokenId;
use thiserror::Error;

use crate::{BadSampling, Logprobs, Sampling};

/// Names a request for as long as it lives.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// A text to be continued.
#[derive(Clone, Debug)]
pub struct Request {
    /// Chosen by the caller; no other live request has it.
    pub id: RequestId,
    /// At least one token, and fewer than the context holds.
    pub prompt: Vec<TokenId>,
    /// The most tokens to produce; `None` goes on to a stop token or the end of the context.
    pub max_tokens: Option<u32>,
    /// Tokens that end the text. The one that came up is no part of the text: it is reported in
    /// [`Finish::Stop`] and never as an [`Event::Token`].
    pub stop: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// For [`Priority`](crate::Priority): higher goes first.
    pub priority: i32,
}

impl Request {
    /// A greedy continuation of `prompt` without bounds of its own.
    pub fn new(id: RequestId, prompt: Vec<TokenId>) -> Self {
        Self {
            id,
            prompt,
            max_tokens: None,
            stop: Vec::new(),
            sampling: Sampling::default(),
            priority: 0,
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
    /// A live request has the same id.
    #[error("a request with id {} is still alive: choose another id", id.0)]
    IdInUse {
        /// The id.
        id: RequestId,
    },
    /// The sampling settings make no sense.
    #[error(transparent)]
    Sampling(#[from] BadSampling),
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
    /// The caller lost interest.
    Cancelled,
    /// Something broke; the text so far is sound, and ends here.
    Failed(String),
}

/// What a request's owner gets to see: at most one `Warm`, then for each sample any number of
/// tokens and one `Finished`.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first tokens of the prompt were found in the cache.
    Warm {
        /// Whose.
        id: RequestId,
        /// How many tokens need not be read.
        tokens: u32,
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
    },
    /// The last event of a sample.
    Finished {
        /// Whose.
        id: RequestId,
        /// Which of the request's texts, from 0.
        sample: u32,
        /// Why.
        finish: Finish,
    },
}

impl Event {
    /// The request that the event belongs to.
    pub fn id(&self) -> RequestId {
        match self {
            Self::Warm { id, .. } | Self::Token { id, .. } | Self::Finished { id, .. } => *id,
        }
    }
}
