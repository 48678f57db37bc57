//! Keeping foreign text from spelling special tokens.
//!
//! Every special token begins with one of few characters. Foreign text gets a mark after each of
//! those before the template sees it, so no special token that begins in foreign text can stand
//! whole in what the template writes, however the template cuts and joins. A mark is a Unicode
//! noncharacter that is no white space: trimming, comparing, sorting and splitting by anything
//! without such a character work as before, and only counting characters sees it. Marks are removed
//! from what was rendered.
//!
//! A template that writes the beginning of a special token itself and lets foreign text complete it
//! is beyond this.

use serde_json::{Map, Value};

use crate::specials::Specials;

/// Reserved by Unicode for use inside a program: no text holds it.
pub(crate) const MARK: char = '\u{FDD0}';

/// The brackets of a thought. Templates find them in the model's own messages to drop old thoughts.
const THOUGHT: [&str; 2] = ["<|channel>", "<channel|>"];

/// Puts marks into foreign text.
pub(crate) struct Shield {
    /// The characters that special tokens begin with. White space is not among them: a run of
    /// newlines that is one token is ordinary text all the same, and templates trim it.
    openers: Vec<char>,
}

impl Shield {
    pub(crate) fn new(specials: &Specials) -> Self {
        let first = specials.spellings().filter_map(|spelling| spelling.chars().next());
        let mut openers: Vec<char> = first.filter(|c| !c.is_whitespace() && *c != '▁').collect();
        openers.sort_unstable();
        openers.dedup();
        Self { openers }
    }

    /// Marks `text`. Marks that are already there are dropped: they would come out as nothing.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len());
        for c in text.chars() {
            self.push(c, &mut marked);
        }
        marked
    }

    /// Marks what the model wrote, except the brackets of its thoughts.
    pub(crate) fn own_text(&self, text: &str) -> String {
        let mut marked = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let bracket = THOUGHT.into_iter().find(|bracket| rest.starts_with(bracket));
            match bracket {
                Some(bracket) => marked.push_str(bracket),
                None => self.push(c, &mut marked),
            }
            rest = &rest[bracket.map_or_else(|| c.len_utf8(), str::len)..];
        }
        marked
    }

    fn push(&self, c: char, marked: &mut String) {
        if c == MARK {
            return;
        }
        marked.push(c);
        if self.openers.contains(&c) {
            marked.push(MARK);
        }
    }

    /// Marks every text in `value`, names of members too.
    pub(crate) fn json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::Object(members) => Value::Object(self.members(members)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Marks every text in an object.
    pub(crate) fn members(&self, members: &Map<String, Value>) -> Map<String, Value> {
        members.iter().map(|(name, value)| (self.text(name), self.json(value))).collect()
    }
}

/// `text` without marks.
pub(crate) fn unmark(text: &str) -> String {
    text.replace(MARK, "")
}
