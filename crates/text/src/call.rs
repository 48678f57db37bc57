//! One tool call, as the model writes it: `call:NAME{…}`.

use serde_json::{Map, Number, Value};

use crate::ToolCall;

/// Stands for the token that quotes strings; no text contains this noncharacter.
pub(crate) const QUOTE: char = '\u{fdd1}';
/// What opens a call.
pub(crate) const CALL: &str = "call:";

/// `call:NAME{…}` and nothing else.
pub(crate) fn parse_call(text: &str) -> Option<ToolCall> {
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

    /// A number, a truth value or null; or a string whose opening quote the model left out.
    fn word(&mut self) -> Option<Value> {
        let end = self.rest.find([',', '}', ']', QUOTE]).unwrap_or(self.rest.len());
        if let Some(rest) = self.rest[end..].strip_prefix(QUOTE) {
            let text = self.rest[..end].to_owned();
            self.rest = rest;
            return Some(Value::String(text));
        }
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
    fn a_missing_opening_quote_is_forgiven() {
        let expected = json!({ "city": "La Paz", "days": 2 });
        let text = "call:f{city:La Paz<|\"|>,days:2}";
        assert_eq!(call(text), Some(("f".into(), expected)));
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
