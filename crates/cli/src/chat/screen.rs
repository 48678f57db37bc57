//! How a conversation looks: thoughts are dim where that can be shown, remarks stand in brackets.

use std::io::{self, Write};

use crate::failure::Failure;

/// Who is heard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Voice {
    /// What is meant for the reader.
    Answer,
    /// What the model thinks first.
    Thought,
    /// A call of a function, which is shown once it is whole.
    Call,
}

/// Where a conversation is shown: standard output, or whatever a test gives.
pub(super) struct Screen<W = io::Stdout> {
    out: W,
    /// Whether escape codes mean something there.
    ansi: bool,
    voice: Voice,
    /// Whether the cursor stands where a line begins.
    fresh: bool,
}

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W, ansi: bool) -> Self {
        Self { out, ansi, voice: Voice::Answer, fresh: true }
    }

    /// Shows what a voice says as it says it.
    pub(super) fn speak(&mut self, voice: Voice, text: &str) -> Result<(), Failure> {
        let change = voice != self.voice && !text.is_empty();
        if change {
            self.end_line()?;
            self.voice = voice;
            self.dim(voice == Voice::Thought)?;
        }
        self.write(text)
    }

    /// A line of its own.
    pub(super) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.end()?;
        self.write(text)?;
        self.write("\n")
    }

    /// Nothing more is said until something new begins.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        self.end_line()?;
        if self.voice == Voice::Thought {
            self.dim(false)?;
        }
        self.voice = Voice::Answer;
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        if self.fresh { Ok(()) } else { self.write("\n") }
    }

    fn dim(&mut self, dim: bool) -> Result<(), Failure> {
        if self.ansi { self.print(if dim { DIM } else { PLAIN }) } else { Ok(()) }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(last) = text.chars().next_back() {
            self.fresh = last == '\n';
        }
        self.print(text)
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(|e| Failure::work("output", format!("standard output: {e}")))
    }
}

/// Something about the conversation rather than in it.
pub(super) fn remark(text: &str) {
    eprintln!("({text})");
}

/// A number of things, in words that agree.
pub(super) fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
