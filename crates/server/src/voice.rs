//! One text as a client gets to see it: taken apart, ended at stop texts, with the log-probabilities
//! of exactly the tokens that are shown.

use std::collections::VecDeque;

use lapidary_core::TokenId;
use lapidary_engine::Logprobs;
use lapidary_text::{ReplyKind, ReplyStream, StopStrings, TextStream, Tokenizer, ToolCall};

/// What a text's next token reveals.
#[derive(Debug)]
pub(crate) enum Said {
    /// Words for the reader, with the tokens they begin in, as far as those have not been told.
    Content(String, Vec<Heard>),
    /// Words of thought.
    Reasoning(String),
    /// A complete call.
    Call(ToolCall),
}

/// A token of the answer.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) token: TokenId,
    pub(crate) logprobs: Option<Box<Logprobs>>,
}

/// How a text's tokens are read.
#[derive(Clone, Debug)]
pub(crate) enum Reader {
    /// As a reply of the chat format.
    Reply(ReplyStream),
    /// As text and nothing else.
    Plain(TextStream),
}

/// A text on its way.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    reader: Reader,
    stops: StopStrings,
    /// Tokens that no piece has accounted for.
    unread: VecDeque<Heard>,
    /// Tokens of content that has not been shown, with where their text begins.
    held: VecDeque<(usize, Heard)>,
    /// Bytes of content read, and shown.
    read: usize,
    shown: usize,
    /// Which stop text came up.
    stopped: Option<usize>,
    tokens: u64,
    reasoning: u64,
    called: bool,
}

impl Voice {
    pub(crate) fn new(reader: Reader, stops: StopStrings) -> Self {
        Self {
            reader,
            stops,
            unread: VecDeque::new(),
            held: VecDeque::new(),
            read: 0,
            shown: 0,
            stopped: None,
            tokens: 0,
            reasoning: 0,
            called: false,
        }
    }

    /// Takes in the next token.
    pub(crate) fn hear(&mut self, heard: Heard, tokenizer: &Tokenizer) -> Vec<Said> {
        let token = heard.token;
        self.unread.push_back(heard);
        match &mut self.reader {
            Reader::Reply(stream) => {
                let pieces = stream.push(token, tokenizer);
                pieces.into_iter().filter_map(|p| self.sort(p.kind, p.tokens)).collect()
            }
            Reader::Plain(stream) => {
                let text = stream.push(tokenizer.bytes(token));
                self.sort(ReplyKind::Content(text), 1).into_iter().collect()
            }
        }
    }

    /// Takes in the end of the text.
    pub(crate) fn end(&mut self, tokenizer: &Tokenizer) -> Vec<Said> {
        let reader = std::mem::replace(&mut self.reader, Reader::Plain(TextStream::default()));
        let mut said: Vec<_> = match reader {
            Reader::Reply(stream) => {
                let pieces = stream.finish(tokenizer);
                pieces.into_iter().filter_map(|p| self.sort(p.kind, p.tokens)).collect()
            }
            Reader::Plain(stream) => {
                self.sort(ReplyKind::Content(stream.finish()), 0).into_iter().collect()
            }
        };
        if self.stopped.is_none() {
            let rest = std::mem::replace(&mut self.stops, no_stops()).finish();
            self.shown += rest.len();
            let heard: Vec<_> = self.held.drain(..).map(|(_, heard)| heard).collect();
            self.tokens += heard.len() as u64;
            if !rest.is_empty() || !heard.is_empty() {
                said.push(Said::Content(rest, heard));
            }
        }
        said
    }

    /// Which stop text came up: neither it nor anything after it is part of the text.
    pub(crate) fn stopped(&self) -> Option<usize> {
        self.stopped
    }

    /// Whether a call came up.
    pub(crate) fn has_called(&self) -> bool {
        self.called
    }

    /// Tokens of the text so far that count, and those of them that are thought or structure.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.tokens, self.reasoning)
    }

    fn sort(&mut self, kind: ReplyKind, tokens: usize) -> Option<Said> {
        if self.stopped.is_some() {
            return None;
        }
        let heard = self.unread.drain(..tokens);
        match kind {
            ReplyKind::Content(text) => {
                let begin = self.read;
                self.held.extend(heard.map(|heard| (begin, heard)));
                self.read += text.len();
                self.show(&text)
            }
            ReplyKind::Reasoning(text) => {
                drop(heard);
                self.tokens += tokens as u64;
                self.reasoning += tokens as u64;
                (!text.is_empty()).then_some(Said::Reasoning(text))
            }
            ReplyKind::Call(call) => {
                drop(heard);
                self.tokens += tokens as u64;
                self.called = true;
                Some(Said::Call(call))
            }
        }
    }

    /// Shows what of the content can be no part of a stop text.
    fn show(&mut self, text: &str) -> Option<Said> {
        let passed = self.stops.push(text);
        self.stopped = passed.stopped;
        self.shown += passed.text.len();
        let told = self.held.iter().take_while(|(begin, _)| *begin < self.shown).count();
        let heard: Vec<_> = self.held.drain(..told).map(|(_, heard)| heard).collect();
        self.tokens += heard.len() as u64;
        let nothing = passed.text.is_empty() && heard.is_empty();
        (!nothing).then_some(Said::Content(passed.text, heard))
    }
}

fn no_stops() -> StopStrings {
    StopStrings::new(Vec::new()).expect("no stop text is empty")
}
