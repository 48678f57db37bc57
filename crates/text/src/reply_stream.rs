//! A reply taken apart while it is written.
//!
//! Structure is recognised by token, never by spelling: a reply that talks about `<|tool_call>` is
//! text. What may still turn out to be structure is held back; what turns out not to be comes out
//! as text, so nothing of a reply is lost but its marks.

use lapidary_core::TokenId;

use crate::call::{CALL, QUOTE, parse_call};
use crate::{TextStream, Tokenizer, ToolCall};

/// The label that opens a thought.
const THOUGHT: &str = "thought\n";

/// Takes a reply apart, token by token.
///
/// Laws: what comes out does not depend on anything that comes later; every token is counted in
/// exactly one piece, in order.
#[derive(Clone, Debug)]
pub struct ReplyStream {
    marks: Marks,
    state: State,
    text: TextStream,
    /// A newline that ends a thought so far, and is dropped if it ends it for good.
    newline: bool,
    /// Whether an earlier thought said something that the next must be told apart from.
    thought_before: bool,
    /// Whether the present thought has said something.
    thought_spoke: bool,
    /// Whether a channel that is no thought is open: its close is text.
    foreign: bool,
    /// The end of a thought's label that the prompt lacks.
    label_rest: &'static [u8],
    pieces: Vec<ReplyPiece>,
}

/// A part of a reply that is certain.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyPiece {
    /// What it is.
    pub kind: ReplyKind,
    /// How many of the reply's tokens it accounts for. Tokens that only give structure count as
    /// reasoning without text.
    pub tokens: usize,
}

/// What a part of a reply is.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyKind {
    /// Meant for the reader.
    Content(String),
    /// Thought.
    Reasoning(String),
    /// A complete call.
    Call(ToolCall),
}

/// Where text goes that belongs to no call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Voice {
    Content,
    Thought,
}

#[derive(Clone, Debug)]
enum State {
    Speaking(Voice),
    /// The beginning of a reply may be a thought's label whose opening token is missing.
    Beginning(Vec<TokenId>),
    /// After the token that opens a channel, which is held first, unless the prompt has it.
    Label(Vec<TokenId>),
    /// After the token that opens a call, which is held first.
    Call {
        held: Vec<TokenId>,
        back_to: Voice,
    },
}

impl ReplyStream {
    /// For a reply that begins with nothing open.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Self {
            marks: Marks::of(tokenizer),
            state: State::Beginning(Vec::new()),
            text: TextStream::default(),
            newline: false,
            thought_before: false,
            thought_spoke: false,
            foreign: false,
            label_rest: &[],
            pieces: Vec::new(),
        }
    }

    /// For a reply to `prompt`, which may have opened a thought that the reply goes on with.
    pub fn after(prompt: &[TokenId], tokenizer: &Tokenizer) -> Self {
        let mut stream = Self::new(tokenizer);
        let Some(inside) = stream.marks.open_thought(prompt) else { return stream };
        let label = tokenizer.decode(inside);
        if label.starts_with(THOUGHT) || THOUGHT.starts_with(&label) {
            stream.state = State::Speaking(Voice::Thought);
            stream.label_rest = THOUGHT.as_bytes().get(label.len()..).unwrap_or_default();
        }
        stream
    }

    /// What the next token makes certain.
    pub fn push(&mut self, token: TokenId, tokenizer: &Tokenizer) -> Vec<ReplyPiece> {
        self.take(token, tokenizer);
        std::mem::take(&mut self.pieces)
    }

    /// What the end of the reply makes certain.
    pub fn finish(mut self, tokenizer: &Tokenizer) -> Vec<ReplyPiece> {
        match std::mem::replace(&mut self.state, State::Speaking(Voice::Content)) {
            State::Speaking(voice) => self.end_text(voice),
            State::Beginning(held) => self.say(Voice::Content, &held, tokenizer),
            State::Label(held) => self.count(held.len()),
            State::Call { held, back_to } => self.end_call(held, back_to, tokenizer),
        }
        self.end_text(Voice::Content);
        self.pieces
    }

    fn take(&mut self, token: TokenId, tokenizer: &Tokenizer) {
        match std::mem::replace(&mut self.state, State::Speaking(Voice::Content)) {
            State::Speaking(voice) => self.speak(voice, token, tokenizer),
            State::Beginning(held) => self.begin(held, token, tokenizer),
            State::Label(held) => self.label(held, token, tokenizer),
            State::Call { held, back_to } => self.call(held, back_to, token, tokenizer),
        }
    }

    /// A token where nothing is held.
    fn speak(&mut self, voice: Voice, token: TokenId, tokenizer: &Tokenizer) {
        self.state = State::Speaking(voice);
        match self.marks.mark(token) {
            Some(Mark::ChannelOpen) => {
                self.end_text(voice);
                self.state = State::Label(vec![token]);
            }
            Some(Mark::CallOpen) => {
                self.end_text(voice);
                self.state = State::Call { held: vec![token], back_to: voice };
            }
            Some(Mark::ChannelClose) if voice == Voice::Thought || !self.foreign => {
                self.end_text(voice);
                self.state = State::Speaking(Voice::Content);
                self.count(1);
            }
            Some(Mark::ChannelClose) => {
                self.foreign = false;
                self.say(voice, &[token], tokenizer);
            }
            Some(Mark::CallClose) | None => self.say(voice, &[token], tokenizer),
        }
    }

    fn begin(&mut self, mut held: Vec<TokenId>, token: TokenId, tokenizer: &Tokenizer) {
        if self.marks.mark(token) == Some(Mark::ChannelClose) {
            if tokenizer.decode(&held).trim_end() == THOUGHT.trim_end() {
                self.count(held.len() + 1);
                return;
            }
        } else {
            held.push(token);
            if THOUGHT.starts_with(&tokenizer.decode(&held)) {
                self.state = State::Beginning(held);
                return;
            }
            held.pop();
        }
        self.say(Voice::Content, &held, tokenizer);
        self.take(token, tokenizer);
    }

    fn label(&mut self, mut held: Vec<TokenId>, token: TokenId, tokenizer: &Tokenizer) {
        let said = tokenizer.decode(&held[1..]);
        match self.marks.mark(token) {
            Some(Mark::ChannelClose) if THOUGHT.starts_with(&said) => {
                return self.count(held.len() + 1);
            }
            Some(Mark::ChannelOpen | Mark::CallOpen) if THOUGHT.starts_with(&said) => {
                self.count(held.len());
                return self.take(token, tokenizer);
            }
            _ => held.push(token),
        }
        let bytes = bytes(&held[1..], tokenizer);
        if let Some(rest) = bytes.strip_prefix(THOUGHT.as_bytes()) {
            self.state = State::Speaking(Voice::Thought);
            self.thought_before |= self.thought_spoke;
            self.thought_spoke = false;
            self.say_bytes(Voice::Thought, rest, held.len());
        } else if THOUGHT.as_bytes().starts_with(&bytes) {
            self.state = State::Label(held);
        } else {
            self.foreign = true;
            self.say(Voice::Content, &held, tokenizer);
        }
    }

    fn call(
        &mut self,
        mut held: Vec<TokenId>,
        back_to: Voice,
        token: TokenId,
        tokenizer: &Tokenizer,
    ) {
        let mark = self.marks.mark(token);
        let call = mark.and_then(|_| self.parse(&held, tokenizer));
        match (mark, call) {
            (Some(Mark::CallClose), Some(call)) => {
                self.state = State::Speaking(back_to);
                self.emit(ReplyKind::Call(call), held.len() + 1);
            }
            // A call that the model forgot to close.
            (Some(_), Some(call)) => {
                self.state = State::Speaking(back_to);
                self.emit(ReplyKind::Call(call), held.len());
                self.take(token, tokenizer);
            }
            // A string may contain anything but the token that quotes it.
            (Some(_), None) if !self.marks.is_quoting(&held) => {
                self.state = State::Speaking(back_to);
                self.say(back_to, &held, tokenizer);
                match mark {
                    Some(Mark::CallClose) => self.say(back_to, &[token], tokenizer),
                    _ => self.take(token, tokenizer),
                }
            }
            _ => {
                held.push(token);
                if self.may_be_call(&held, tokenizer) {
                    self.state = State::Call { held, back_to };
                } else {
                    self.state = State::Speaking(back_to);
                    self.say(back_to, &held, tokenizer);
                }
            }
        }
    }

    fn end_call(&mut self, held: Vec<TokenId>, back_to: Voice, tokenizer: &Tokenizer) {
        match self.parse(&held, tokenizer) {
            Some(call) => self.emit(ReplyKind::Call(call), held.len()),
            None => self.say(back_to, &held, tokenizer),
        }
        self.end_text(back_to);
    }

    /// The call that a call's opening token and what follows it make.
    fn parse(&self, held: &[TokenId], tokenizer: &Tokenizer) -> Option<ToolCall> {
        parse_call(&self.marks.quoted(&held[1..], tokenizer))
    }

    /// Whether what follows the opening token begins as every call does.
    fn may_be_call(&self, held: &[TokenId], tokenizer: &Tokenizer) -> bool {
        // Each token has a byte at least, so these decide.
        let first = bytes(&held[1..held.len().min(1 + CALL.len())], tokenizer);
        first.starts_with(CALL.as_bytes()) || CALL.as_bytes().starts_with(&first)
    }

    fn say(&mut self, voice: Voice, tokens: &[TokenId], tokenizer: &Tokenizer) {
        for &token in tokens {
            self.say_bytes(voice, tokenizer.bytes(token), 1);
        }
    }

    fn say_bytes(&mut self, voice: Voice, mut bytes: &[u8], tokens: usize) {
        while let (Some((next, rest)), Some((first, after))) =
            (self.label_rest.split_first(), bytes.split_first())
        {
            (self.label_rest, bytes) =
                if next == first { (rest, after) } else { (Default::default(), bytes) };
        }
        let text = self.text.push(bytes);
        self.say_text(voice, text, tokens);
    }

    /// Ends what `voice` says: half a character comes out as broken, a thought's last newline not
    /// at all.
    fn end_text(&mut self, voice: Voice) {
        let rest = std::mem::take(&mut self.text).finish();
        if !rest.is_empty() {
            self.say_text(voice, rest, 0);
        }
        self.newline = false;
    }

    fn say_text(&mut self, voice: Voice, text: String, tokens: usize) {
        let kind = match voice {
            Voice::Content => ReplyKind::Content(text),
            Voice::Thought => ReplyKind::Reasoning(self.thought(&text)),
        };
        self.emit(kind, tokens);
    }

    /// What a thought's `text` adds to the reasoning: a newline at its end is held back, one that
    /// was comes first, and so does one that sets it apart from an earlier thought.
    fn thought(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let mut said = String::new();
        if std::mem::take(&mut self.newline) {
            said.push('\n');
        }
        let kept = text.strip_suffix('\n').unwrap_or(text);
        self.newline = kept.len() < text.len();
        said.push_str(kept);
        if !said.is_empty() {
            let begins = !std::mem::replace(&mut self.thought_spoke, true);
            if begins && self.thought_before {
                said.insert(0, '\n');
            }
        }
        said
    }

    /// Accounts for tokens that only give structure.
    fn count(&mut self, tokens: usize) {
        self.emit(ReplyKind::Reasoning(String::new()), tokens);
    }

    fn emit(&mut self, kind: ReplyKind, tokens: usize) {
        self.pieces.push(ReplyPiece { kind, tokens });
    }
}

fn bytes(tokens: &[TokenId], tokenizer: &Tokenizer) -> Vec<u8> {
    tokens.iter().flat_map(|token| tokenizer.bytes(*token)).copied().collect()
}

/// A token's part in the structure of a reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mark {
    ChannelOpen,
    ChannelClose,
    CallOpen,
    CallClose,
}

/// The tokens that give a reply its structure; a vocabulary may lack any.
#[derive(Clone, Copy, Debug)]
struct Marks {
    channel: Option<(TokenId, TokenId)>,
    call: Option<(TokenId, TokenId)>,
    quote: Option<TokenId>,
    turn: Option<TokenId>,
}

impl Marks {
    fn of(tokenizer: &Tokenizer) -> Self {
        let special = |spelling| tokenizer.specials().token(spelling);
        let pair = |open, close| Some((special(open)?, special(close)?));
        Self {
            channel: pair("<|channel>", "<channel|>"),
            call: pair("<|tool_call>", "<tool_call|>"),
            quote: special("<|\"|>"),
            turn: special("<|turn>"),
        }
    }

    fn mark(&self, token: TokenId) -> Option<Mark> {
        let of = |pair: Option<(TokenId, TokenId)>, open, close| {
            let (opening, closing) = pair?;
            if token == opening { Some(open) } else { (token == closing).then_some(close) }
        };
        let channel = of(self.channel, Mark::ChannelOpen, Mark::ChannelClose);
        channel.or_else(|| of(self.call, Mark::CallOpen, Mark::CallClose))
    }

    /// What follows the channel that a prompt leaves open in its last turn.
    fn open_thought<'a>(&self, prompt: &'a [TokenId]) -> Option<&'a [TokenId]> {
        let turn = prompt.iter().rposition(|token| Some(*token) == self.turn).unwrap_or(0);
        let last = prompt[turn..].iter().rposition(|token| {
            matches!(self.mark(*token), Some(Mark::ChannelOpen | Mark::ChannelClose))
        });
        let last = turn + last?;
        let open = self.mark(prompt[last]) == Some(Mark::ChannelOpen);
        open.then(|| &prompt[last + 1..])
    }

    /// Whether a string is open at the end of `tokens`.
    fn is_quoting(&self, tokens: &[TokenId]) -> bool {
        let quotes = tokens.iter().filter(|token| Some(**token) == self.quote);
        !quotes.count().is_multiple_of(2)
    }

    /// The text of tokens, with every quoting token as [`QUOTE`].
    fn quoted(&self, tokens: &[TokenId], tokenizer: &Tokenizer) -> String {
        let parts = tokens.split(|token| Some(*token) == self.quote);
        let parts: Vec<_> = parts.map(|part| tokenizer.decode(part)).collect();
        parts.join(&QUOTE.to_string())
    }
}
