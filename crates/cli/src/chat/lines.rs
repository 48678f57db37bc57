//! Where the lines of a conversation come from, and which of them belong together.

use std::io::BufRead;

use super::editor::Editor;
use crate::failure::Failure;

/// Opens and closes a text of several lines.
const QUOTES: &str = "\"\"\"";

/// Where lines come from.
pub(super) enum Lines {
    /// From a person, with an editor.
    Typed(Box<Editor>),
    /// From standard input.
    Piped(std::io::StdinLock<'static>),
}

/// What came.
pub(super) enum Read {
    /// One message or command, its lines joined.
    Text(String),
    /// The person thought better of it.
    Cleared,
    /// There is no more.
    End,
}

impl Lines {
    pub(super) fn piped() -> Self {
        Self::Piped(std::io::stdin().lock())
    }

    /// The next message or command; `prompt` invites a person to type it.
    pub(super) fn next(&mut self, prompt: &str) -> Result<Read, Failure> {
        let read = match self {
            Self::Typed(editor) => editor.next(prompt),
            Self::Piped(stdin) => gather(stdin),
        };
        read.map_err(|e| Failure::work("input", format!("standard input: {e}")))
    }
}

/// Lines up to one that ends a message, or to the end.
fn gather(input: &mut impl BufRead) -> std::io::Result<Read> {
    let mut text = String::new();
    while input.read_line(&mut text)? > 0 {
        if let Some(line) = text.strip_suffix('\n') {
            text.truncate(line.strip_suffix('\r').unwrap_or(line).len());
        }
        if is_whole(&text) {
            return Ok(Read::Text(written(&text)));
        }
        text.push('\n');
    }
    Ok(if text.is_empty() { Read::End } else { Read::Text(written(text.trim_end())) })
}

/// Whether no more lines belong to what was typed so far.
pub(super) fn is_whole(text: &str) -> bool {
    match text.trim().strip_prefix(QUOTES) {
        Some(inside) => inside.ends_with(QUOTES),
        None => !text.ends_with('\\'),
    }
}

/// What is meant by lines that belong together: quotes are left out, and so are the backslashes
/// that join lines.
pub(super) fn written(text: &str) -> String {
    match text.trim().strip_prefix(QUOTES) {
        Some(inside) => inside.strip_suffix(QUOTES).unwrap_or(inside).trim_matches('\n').to_owned(),
        None => text.strip_suffix('\\').unwrap_or(text).replace("\\\n", "\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(input: &str) -> Vec<String> {
        let mut input = input.as_bytes();
        let next = || match gather(&mut input).expect("memory can be read") {
            Read::Text(text) => Some(text),
            Read::Cleared | Read::End => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn every_line_is_a_message() {
        assert_eq!(messages("a\r\nb\n\nc"), ["a", "b", "", "c"]);
        assert!(messages("").is_empty());
    }

    #[test]
    fn a_backslash_joins_lines() {
        assert_eq!(messages("a\\\nb\\\n\\\nc\nd"), ["a\nb\n\nc", "d"]);
        assert_eq!(messages("a\\"), ["a"]);
    }

    #[test]
    fn quotes_hold_lines_together() {
        assert_eq!(messages("\"\"\"a\n/quit\n\nb\\\n\"\"\"\nc"), ["a\n/quit\n\nb\\", "c"]);
        assert_eq!(messages("\"\"\"\none\n\"\"\"\n"), ["one"]);
        assert_eq!(messages("\"\"\"one\"\"\"\n"), ["one"]);
        assert_eq!(messages("\"\"\"never\nclosed"), ["never\nclosed"]);
    }
}
