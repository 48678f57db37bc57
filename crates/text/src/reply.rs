//! What a finished reply consists of: thoughts, text, tool calls.
//!
//! Structure is recognised by token, never by spelling: a reply that talks about `<|tool_call>` is
//! text. Whatever does not parse comes back as text, so nothing of a reply is lost.

use lapidary_core::TokenId;
use serde_json::{Map, Number, Value};

use crate::{Tokenizer, ToolCall};

/// The parts of a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// What is meant for the reader.
    pub content: String,
    /// What the model thought first; several thoughts are joined by newlines.
    pub reasoning: String,
    /// Calls, in order.
    pub tool_calls: Vec<ToolCall>,
}

/// Stands for the token that quotes strings; no text contains this noncharacter.
const QUOTE: char = '\u{fdd1}';
/// The label that opens a thought.
const THOUGHT: &str = "thought\n";
/// What opens a call.
const CALL: &str = "call:";

impl Reply {
    /// Takes a reply's tokens apart, end tokens not among them.
    pub fn of(tokens: &[TokenId], tokenizer: &Tokenizer) -> Self {
        let marks = Marks::of(tokenizer);
        let mut reply = Self::default();
        let mut rest = tokens;
        while let Some((&token, after)) = rest.split_first() {
            let close = marks.close_of(token);
            let length = close.and_then(|close| after.iter().position(|t| *t == close));
            let taken = match length {
                Some(length) => reply.take(token, &after[..length], &marks, tokenizer),
                None => false,
            };
            if let (true, Some(length)) = (taken, length) {
                rest = &after[length + 1..];
            } else {
                let plain = rest.iter().skip(1).position(|t| marks.close_of(*t).is_some());
                let end = plain.map_or(rest.len(), |at| at + 1);
                reply.content.push_str(&tokenizer.decode(&rest[..end]));
                rest = &rest[end..];
            }
        }
        reply
    }

    /// Takes what lies between an opening token and its close, if it is what it should be.
    fn take(
        &mut self,
        open: TokenId,
        inside: &[TokenId],
        marks: &Marks,
        tokenizer: &Tokenizer,
    ) -> bool {
        if Some(open) == marks.channel.map(|(open, _)| open) {
            let text = tokenizer.decode(inside);
            let Some(thought) = text.strip_prefix(THOUGHT) else { return false };
            if !self.reasoning.is_empty() && !thought.is_empty() {
                self.reasoning.push('\n');
            }
            self.reasoning.push_str(thought.strip_suffix('\n').unwrap_or(thought));
            return true;
        }
        let call = parse_call(&marks.quoted(inside, tokenizer));
        let parsed = call.is_some();
        self.tool_calls.extend(call);
        parsed
    }
}

/// The tokens that give a reply its structure; a vocabulary may lack any.
struct Marks {
    channel: Option<(TokenId, TokenId)>,
    call: Option<(TokenId, TokenId)>,
    quote: Option<TokenId>,
}

impl Marks {
    fn of(tokenizer: &Tokenizer) -> Self {
        let special = |spelling| tokenizer.specials().token(spelling);
        let pair = |open, close| Some((special(open)?, special(close)?));
        Self {
            channel: pair("<|channel>", "<channel|>"),
            call: pair("<|tool_call>", "<tool_call|>"),
            quote: special("<|\"|>"),
        }
    }

    fn close_of(&self, token: TokenId) -> Option<TokenId> {
        let pairs = [self.channel, self.call];
        pairs.into_iter().flatten().find(|(open, _)| *open == token).map(|(_, close)| close)
    }

    /// The text of tokens, with every quoting token as [`QUOTE`].
    fn quoted(&self, tokens: &[TokenId], tokenizer: &Tokenizer) -> String {
        let parts = tokens.split(|token| Some(*token) == self.quote);
        let parts: Vec<_> = parts.map(|part| tokenizer.decode(part)).collect();
        parts.join(&QUOTE.to_string())
    }
}

/// `call:NAME{…}` and nothing else.
fn parse_call(text: &str) -> Option<ToolCall> {
    let rest = text.strip_prefix(CALL)?;
    let (name, _) = rest.split_once('{')?;
    let mut parser = Parser { rest: &rest[name.len()..] };
    let arguments = parser.object(0)?;
    let whole = parser.rest.trim().is_empty() && !name.trim().is_empty();
    whole.then(|| ToolCall {
        id: None,
        name: name.trim().to_owned(),
        arguments: Value::Object(arguments),
    })
}

/// Deepest nesting of arguments.
const DEEPEST: usize = 64;

/// The argument language: strings between quoting tokens, numbers, words, lists, objects with bare
/// or quoted keys.
struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        self.blanks();
        match self.rest.chars().next()? {
            _ if depth > DEEPEST => None,
            '{' => self.object(depth).map(Value::Object),
            '[' => self.list(depth).map(Value::Array),
            QUOTE => self.string().map(Value::String),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let mut object = Map::new();
        self.expect('{')?;
        if self.eat('}') {
            return Some(object);
        }
        loop {
            let key = self.key()?;
            object.insert(key, self.value(depth + 1)?);
            if !self.eat(',') {
                self.expect('}')?;
                return Some(object);
            }
        }
    }

    fn list(&mut self, depth: usize) -> Option<Vec<Value>> {
        let mut list = Vec::new();
        self.expect('[')?;
        if self.eat(']') {
            return Some(list);
        }
        loop {
            list.push(self.value(depth + 1)?);
            if !self.eat(',') {
                self.expect(']')?;
                return Some(list);
            }
        }
    }

    fn key(&mut self) -> Option<String> {
        self.blanks();
        if self.rest.starts_with(QUOTE) {
            let key = self.string()?;
            self.expect(':')?;
            return Some(key);
        }
        let (key, rest) = self.rest.split_once(':')?;
        let bare = !key.is_empty() && !key.contains(['{', '}', '[', ']', ',', QUOTE]);
        self.rest = rest;
        bare.then(|| key.trim().to_owned())
    }

    fn string(&mut self) -> Option<String> {
        let (text, rest) = self.rest.strip_prefix(QUOTE)?.split_once(QUOTE)?;
        self.rest = rest;
        Some(text.to_owned())
    }

    /// A number, a truth value or null.
    fn word(&mut self) -> Option<Value> {
        let end = self.rest.find([',', '}', ']', QUOTE]).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word.trim() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" | "None" => Some(Value::Null),
            number => number.parse::<Number>().ok().map(Value::Number),
        }
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.blanks();
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, wanted: char) -> Option<()> {
        self.eat(wanted).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(text: &str) -> Option<(String, Value)> {
        let quoted = text.replace("<|\"|>", &QUOTE.to_string());
        parse_call(&quoted).map(|call| (call.name, call.arguments))
    }

    #[test]
    fn the_whole_value_grammar_parses() {
        let text = "call:f{a:<|\"|>x, {y}: \\\"<|\"|>,b.c:-2.5e3,@d:[1,[],{e:null}],g:{},h:true}";
        let expected = json!({
            "a": "x, {y}: \\\"", "b.c": -2.5e3, "@d": [1, [], { "e": null }], "g": {}, "h": true,
        });
        assert_eq!(call(text), Some(("f".into(), expected)));
        assert_eq!(call("call:f{}"), Some(("f".into(), json!({}))));
    }

    #[test]
    fn malformed_calls_are_no_calls() {
        let deep = format!("call:f{{a:{}", "[".repeat(100_000));
        let broken =
            ["call:f", "f{}", "call:{}", "call:f{a}", "call:f{a:}", "call:f{a:1", "call:f{a:b}"];
        for text in broken.into_iter().chain([deep.as_str(), "call:f{a:<|\"|>x}", "call:f{} more"])
        {
            assert_eq!(call(text), None, "{}", &text[..text.len().min(40)]);
        }
    }
}
