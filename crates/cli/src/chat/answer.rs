//! Hearing one answer: tokens become voices, voices appear on the screen.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lapidary_core::TokenId;
use lapidary_engine::{Event, Finish, Ticket};
use lapidary_text::{Reply, StopStrings, TextStream, Tokenizer};

use super::screen::{Screen, Voice};
use crate::failure::Failure;
use crate::run::next_event;

/// What was heard.
pub(super) struct Heard {
    pub(super) reply: Reply,
    pub(super) ended: Ended,
    /// Tokens of the prompt that were found in the cache.
    pub(super) cached: u32,
    /// Tokens of the answer.
    pub(super) tokens: usize,
    /// Time to the first token.
    pub(super) first: Duration,
    pub(super) total: Duration,
}

/// Why it ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    Stop,
    Length,
    Interrupted,
    Failed(String),
}

/// Listens to the end, showing everything as it comes.
pub(super) fn hear(
    mut ticket: Ticket,
    tokenizer: &Tokenizer,
    stop: StopStrings,
    screen: &mut Screen,
    pressed: &AtomicBool,
) -> Result<Heard, Failure> {
    let began = Instant::now();
    let mut ear = Ear::new(tokenizer, stop);
    let (mut ended, mut cached, mut first) = (Ended::Interrupted, 0, None);
    while let Some(event) = next_event(&mut ticket, pressed) {
        match event {
            Event::Warm { tokens, .. } => cached = tokens,
            Event::Token { token, .. } => {
                first.get_or_insert_with(|| began.elapsed());
                ear.hear(token, screen)?;
                if ear.stopped {
                    ended = Ended::Stop;
                    break;
                }
            }
            Event::Finished { finish, .. } => {
                ended = match finish {
                    Finish::Stop { .. } => Ended::Stop,
                    Finish::Length => Ended::Length,
                    Finish::Cancelled => Ended::Interrupted,
                    Finish::Failed(reason) => Ended::Failed(reason),
                };
                break;
            }
        }
    }
    let total = began.elapsed();
    let tokens = ear.tokens.len();
    let reply = ear.finish(screen)?;
    Ok(Heard { reply, ended, cached, tokens, first: first.unwrap_or(total), total })
}

/// Tells the voices of an answer apart, by token and never by spelling.
struct Ear<'a> {
    tokenizer: &'a Tokenizer,
    tokens: Vec<TokenId>,
    voice: Voice,
    /// The token that ends the voice, where another than the answer's speaks.
    close: Option<TokenId>,
    /// Whether the line that labels a thought is still being heard.
    label: bool,
    stream: TextStream,
    stop: StopStrings,
    stopped: bool,
    /// What the answer's voice has said.
    said: String,
}

impl<'a> Ear<'a> {
    fn new(tokenizer: &'a Tokenizer, stop: StopStrings) -> Self {
        Self {
            tokenizer,
            tokens: Vec::new(),
            voice: Voice::Answer,
            close: None,
            label: false,
            stream: TextStream::default(),
            stop,
            stopped: false,
            said: String::new(),
        }
    }

    fn hear(&mut self, token: TokenId, screen: &mut Screen) -> Result<(), Failure> {
        self.tokens.push(token);
        if self.close == Some(token) {
            (self.voice, self.close) = (Voice::Answer, None);
            return Ok(());
        }
        if let (None, Some((voice, close))) = (self.close, self.opened_by(token)) {
            (self.voice, self.close, self.label) = (voice, Some(close), voice == Voice::Thought);
            return Ok(());
        }
        let text = self.stream.push(self.tokenizer.bytes(token));
        match self.voice {
            Voice::Call => Ok(()),
            Voice::Thought => screen.speak(Voice::Thought, self.unlabelled(&text)),
            Voice::Answer => self.answer(&text, screen),
        }
    }

    /// The voice that a token opens, and the token that ends it.
    fn opened_by(&self, token: TokenId) -> Option<(Voice, TokenId)> {
        let special = |spelling| self.tokenizer.specials().token(spelling);
        let brackets = [
            (Voice::Thought, "<|channel>", "<channel|>"),
            (Voice::Call, "<|tool_call>", "<tool_call|>"),
        ];
        let opened = brackets.into_iter().find(|(_, open, _)| special(open) == Some(token))?;
        Some((opened.0, special(opened.2)?))
    }

    fn unlabelled<'t>(&mut self, text: &'t str) -> &'t str {
        if !self.label {
            return text;
        }
        let Some((_, thought)) = text.split_once('\n') else { return "" };
        self.label = false;
        thought
    }

    fn answer(&mut self, text: &str, screen: &mut Screen) -> Result<(), Failure> {
        let passed = self.stop.push(text);
        self.stopped = passed.stopped.is_some();
        self.said.push_str(&passed.text);
        screen.speak(Voice::Answer, &passed.text)
    }

    /// What was held back is said, and the whole is taken apart. A thought that was broken off is
    /// still a thought.
    fn finish(mut self, screen: &mut Screen) -> Result<Reply, Failure> {
        let rest = std::mem::take(&mut self.stream).finish();
        if self.voice == Voice::Answer && !self.stopped {
            self.answer(&rest, screen)?;
            if !self.stopped {
                let held = self.stop.clone().finish();
                self.said.push_str(&held);
                screen.speak(Voice::Answer, &held)?;
            }
        }
        if self.voice == Voice::Thought {
            self.tokens.extend(self.close);
        }
        let mut reply = Reply::of(&self.tokens, self.tokenizer);
        if self.stopped {
            reply.content = self.said;
        }
        Ok(reply)
    }
}
