//! Hearing one answer: tokens become voices, voices appear on the screen.

use std::io::Write;
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
pub(super) fn hear<W: Write>(
    mut ticket: Ticket,
    tokenizer: &Tokenizer,
    stop: StopStrings,
    screen: &mut Screen<W>,
    pressed: &AtomicBool,
) -> Result<Heard, Failure> {
    let began = Instant::now();
    let mut ear = Ear::new(tokenizer, stop);
    let (mut ended, mut cached, mut first) = (Ended::Interrupted, 0, None);
    while let Some(event) = next_event(&mut ticket, pressed) {
        match event {
            Event::Warm { tokens, .. } => cached = tokens,
            Event::Prompt { .. } | Event::Embedding { .. } => {}
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
                    Finish::Stop { .. } | Finish::Complete => Ended::Stop,
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

    fn hear<W: Write>(&mut self, token: TokenId, screen: &mut Screen<W>) -> Result<(), Failure> {
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

    fn answer<W: Write>(&mut self, text: &str, screen: &mut Screen<W>) -> Result<(), Failure> {
        let passed = self.stop.push(text);
        self.stopped = passed.stopped.is_some();
        self.said.push_str(&passed.text);
        screen.speak(Voice::Answer, &passed.text)
    }

    /// What was held back is said, and the whole is taken apart. A thought that was broken off is
    /// still a thought.
    fn finish<W: Write>(mut self, screen: &mut Screen<W>) -> Result<Reply, Failure> {
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

#[cfg(test)]
mod tests {
    use lapidary_text::Control;

    use super::*;
    use crate::model::{Text, find};

    /// What is shown of an answer, and what is taken from it.
    fn heard(written: &str, stop: &[&str], ansi: bool) -> (String, Reply) {
        let source = find(None).unwrap_or_else(|e| panic!("{e}"));
        let text = Text::of(&source).unwrap_or_else(|e| panic!("{e}"));
        let stop = StopStrings::new(stop.iter().map(|s| (*s).to_owned()).collect());
        let mut ear = Ear::new(&text.tokenizer, stop.expect("none is empty"));
        let mut shown = Vec::new();
        let mut screen = Screen::new(&mut shown, ansi);
        let done = text
            .tokenizer
            .encode(written, Control::Honour)
            .into_iter()
            .try_for_each(|t| if ear.stopped { Ok(()) } else { ear.hear(t, &mut screen) });
        done.unwrap_or_else(|e| panic!("{e}"));
        let reply = ear.finish(&mut screen).unwrap_or_else(|e| panic!("{e}"));
        screen.end().unwrap_or_else(|e| panic!("{e}"));
        (String::from_utf8(shown).expect("it is text"), reply)
    }

    const WHOLE: &str =
        "<|channel>thought\nHm, well.\n<channel|>It is.<|tool_call>call:f{a:1}<tool_call|>";

    #[test]
    fn thoughts_are_dim_at_a_terminal_and_plain_elsewhere() {
        assert_eq!(heard(WHOLE, &[], true).0, "\x1b[2mHm, well.\n\x1b[0mIt is.\n");
        let (shown, reply) = heard(WHOLE, &[], false);
        assert_eq!(shown, "Hm, well.\nIt is.\n");
        assert_eq!((reply.reasoning.as_str(), reply.content.as_str()), ("Hm, well.", "It is."));
        assert_eq!(reply.tool_calls.len(), 1);
    }

    #[test]
    fn an_answer_that_only_talks_about_thoughts_is_no_thought() {
        let (shown, reply) = heard("the word thought", &[], true);
        assert_eq!(
            (shown.as_str(), reply.content.as_str()),
            ("the word thought\n", "the word thought")
        );
    }

    #[test]
    fn a_thought_that_is_broken_off_is_dim_and_no_answer() {
        let (shown, reply) = heard("<|channel>thought\nHm", &[], true);
        assert_eq!(shown, "\x1b[2mHm\n\x1b[0m");
        assert_eq!((reply.reasoning.as_str(), reply.content.as_str()), ("Hm", ""));
    }

    #[test]
    fn a_stop_string_ends_the_answer_but_not_the_thought() {
        let (shown, reply) = heard(WHOLE, &["well", " is"], false);
        assert_eq!((shown.as_str(), reply.content.as_str()), ("Hm, well.\nIt\n", "It"));
    }
}
