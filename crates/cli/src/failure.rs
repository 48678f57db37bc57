//! What goes wrong at the command line: one sentence, a status, and a code for programs.

use std::fmt::Display;

use serde_json::json;

/// The work failed. Shown as `error: …` with status 1, or with another status for other causes.
#[derive(Debug)]
pub(crate) struct Failure {
    /// For programs that read `--json`.
    pub(crate) code: &'static str,
    /// One sentence naming the thing and the remedy.
    pub(crate) message: String,
    pub(crate) status: u8,
}

/// Exit status of work that failed.
const FAILED: u8 = 1;
/// Exit status of wrong usage.
const USAGE: u8 = 2;
/// Exit status after Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    /// The work failed.
    pub(crate) fn work(code: &'static str, message: impl Display) -> Self {
        Self { code, message: message.to_string(), status: FAILED }
    }

    /// The command line asks for something that cannot be meant.
    pub(crate) fn usage(code: &'static str, message: impl Display) -> Self {
        Self { code, message: message.to_string(), status: USAGE }
    }

    /// Tells a person, and with `json` a program too.
    pub(crate) fn report(&self, json: bool) -> u8 {
        if json {
            let (message, hint) = self.message.split_once(';').unwrap_or((&self.message, ""));
            let error = json!({ "code": self.code, "message": message, "hint": hint.trim() });
            println!("{}", json!({ "error": error }));
        }
        eprintln!("error: {}", self.message);
        self.status
    }
}
