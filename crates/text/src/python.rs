//! Values as Python writes them, where that differs from Rust.

use std::fmt::Write;

use serde_json::Value;

use crate::shield::MARK;

/// A float as `repr` writes it: the shortest digits, with an exponent outside 1e-4 … 1e16.
pub(crate) fn float(x: f64) -> String {
    if x == 0.0 || (1e-4..1e16).contains(&x.abs()) || !x.is_finite() {
        return format!("{x:?}");
    }
    let text = format!("{x:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, size) = match exponent.strip_prefix('-') {
        Some(size) => ('-', size),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{size:0>2}")
}

/// What `str.strip` drops: Unicode's white space and four separators among the controls.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// How `json.dumps` is asked to write.
pub(crate) struct Dumps {
    pub(crate) item_separator: String,
    pub(crate) key_separator: String,
    /// One level of indentation; without it everything stands on one line.
    pub(crate) indent: Option<String>,
    pub(crate) sort_keys: bool,
    pub(crate) ensure_ascii: bool,
}

impl Dumps {
    /// The text of `value`.
    pub(crate) fn text(&self, value: &Value) -> String {
        let mut text = String::new();
        self.write(value, 0, &mut text);
        text
    }

    fn write(&self, value: &Value, depth: usize, text: &mut String) {
        match value {
            Value::Null => text.push_str("null"),
            Value::Bool(b) => text.push_str(if *b { "true" } else { "false" }),
            Value::Number(n) => match n.as_f64().filter(|_| n.is_f64()) {
                Some(x) => text.push_str(&float(x)),
                None => text.push_str(&n.to_string()),
            },
            Value::String(s) => self.quote(s, text),
            Value::Array(items) => {
                let write = |item: &Value, text: &mut String| self.write(item, depth + 1, text);
                self.enclose(('[', ']'), depth, items.iter().map(|i| (i, &write)), text);
            }
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if self.sort_keys {
                    members.sort_by_key(|(name, _)| *name);
                }
                let write = |(name, value): (&String, &Value), text: &mut String| {
                    self.quote(name, text);
                    text.push_str(&self.key_separator);
                    self.write(value, depth + 1, text);
                };
                self.enclose(('{', '}'), depth, members.into_iter().map(|m| (m, &write)), text);
            }
        }
    }

    fn enclose<T, W: Fn(T, &mut String)>(
        &self,
        (open, close): (char, char),
        depth: usize,
        items: impl ExactSizeIterator<Item = (T, W)>,
        text: &mut String,
    ) {
        let count = items.len();
        text.push(open);
        for (i, (item, write)) in items.enumerate() {
            if i > 0 {
                text.push_str(&self.item_separator);
            }
            self.new_line(depth + 1, text);
            write(item, text);
        }
        if count > 0 {
            self.new_line(depth, text);
        }
        text.push(close);
    }

    fn new_line(&self, depth: usize, text: &mut String) {
        if let Some(indent) = &self.indent {
            text.push('\n');
            text.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn quote(&self, s: &str, text: &mut String) {
        text.push('"');
        for c in s.chars() {
            match c {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\u{8}' => text.push_str("\\b"),
                '\u{c}' => text.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c != MARK && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(text, "\\u{unit:04x}").expect("a String takes any text");
                    }
                }
                c => text.push(c),
            }
        }
        text.push('"');
    }
}
