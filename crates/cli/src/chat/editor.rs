//! The line editor, with a history that lasts.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use reedline::{
    FileBackedHistory, Prompt, PromptEditMode, PromptHistorySearch, Reedline, Signal,
    ValidationResult, Validator,
};

use super::lines::{Read, is_whole, written};

/// Entries that are kept.
const HISTORY: usize = 10_000;

/// Lets a person type messages of one or more lines.
pub(super) struct Editor {
    reedline: Reedline,
}

impl Editor {
    /// With the history of earlier conversations, where there is a place for one.
    pub(super) fn new() -> Self {
        let reedline = Reedline::create().with_validator(Box::new(Whole)).use_bracketed_paste(true);
        let history = place().and_then(|file| FileBackedHistory::with_file(HISTORY, file).ok());
        let reedline = match history {
            Some(history) => reedline.with_history(Box::new(history)),
            None => reedline,
        };
        Self { reedline }
    }

    pub(super) fn next(&mut self, prompt: &str) -> io::Result<Read> {
        Ok(match self.reedline.read_line(&Invitation(prompt))? {
            Signal::Success(text) => Read::Text(written(&text)),
            Signal::CtrlD => Read::End,
            _ => Read::Cleared,
        })
    }
}

/// Histories lie where the system keeps what programs remember.
#[expect(clippy::disallowed_methods, reason = "the command line is where the environment is read")]
fn place() -> Option<PathBuf> {
    let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let state = named("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(PathBuf::from(named("HOME")?).join(".local/state")));
    Some(state?.join("lapidary").join("history"))
}

/// Enter ends a message only when no more lines belong to it.
struct Whole;

impl Validator for Whole {
    fn validate(&self, text: &str) -> ValidationResult {
        if is_whole(text) { ValidationResult::Complete } else { ValidationResult::Incomplete }
    }
}

/// What stands before the cursor.
struct Invitation<'a>(&'a str);

impl Prompt for Invitation<'_> {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        self.0.into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        "> ".into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        ". ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        format!("history, `{}`: ", search.term).into()
    }
}
