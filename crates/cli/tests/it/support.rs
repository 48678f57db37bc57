//! Starting the real binary and taking what it says.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) const QUESTION: &str = "What is the capital of Mongolia?";
pub(crate) const ANSWER: &str = "The capital of Mongolia is Ulaanbaatar.";

pub(crate) fn lapidary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lapidary"));
    command.args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn output(arguments: &[&str]) -> Output {
    lapidary(arguments).output().expect("the binary starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Standard output of a run that must succeed.
pub(crate) fn said(arguments: &[&str]) -> String {
    let out = output(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    text(&out.stdout)
}

/// Status and standard error of a run that must fail.
pub(crate) fn refused(arguments: &[&str]) -> (i32, String) {
    let out = output(arguments);
    assert!(!out.status.success(), "{arguments:?} succeeded");
    (out.status.code().expect("it exits by itself"), text(&out.stderr))
}

pub(crate) fn object(arguments: &[&str]) -> Value {
    serde_json::from_str(&said(arguments)).expect("one JSON object")
}

/// What comes of a run whose standard input is `input`.
pub(crate) fn fed(arguments: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut command = lapidary(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A program that has left does not read.
    let _ = stdin.write_all(input.as_ref());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}
