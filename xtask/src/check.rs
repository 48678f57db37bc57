//! `cargo xtask check`: formatting, lints, documentation, tests, and the README's first command.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};

/// The question of the README, and what must come back.
const QUESTION: &str = "What is the capital of Mongolia?";
const ANSWER: &str = "The capital of Mongolia is Ulaanbaatar.\n";

pub(crate) fn check() -> anyhow::Result<()> {
    step("format", cargo("fmt --all --check"))?;
    step("lints", cargo("clippy --workspace --all-targets --quiet -- -D warnings"))?;
    let mut doc = cargo("doc --workspace --no-deps --document-private-items --quiet");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    step("documentation", doc)?;
    step("tests", cargo("test --workspace --release"))?;
    // As part of the workspace, so that what the tests were built with serves again.
    let damaged = "test --workspace --release --features lapidary-format/slow --test measured";
    step("a million damaged files", cargo(damaged))?;
    readme()
}

fn cargo(arguments: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments.split(' '));
    command
}

fn step(name: &str, mut command: Command) -> anyhow::Result<()> {
    println!("== {name}");
    let began = Instant::now();
    let status = command.status().with_context(|| format!("{name}: cargo did not start"))?;
    ensure!(status.success(), "{name}: {command:?} failed");
    println!("== {name} took {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Runs the README's first command as it stands.
fn readme() -> anyhow::Result<()> {
    println!("== README");
    let mut command = cargo("run --release --quiet -- run");
    let output = command.arg(QUESTION).output().context("README: cargo did not start")?;
    ensure!(output.status.success(), "README: {}", String::from_utf8_lossy(&output.stderr));
    let answer = String::from_utf8_lossy(&output.stdout);
    ensure!(answer == ANSWER, "README: the answer was {answer:?}, not {ANSWER:?}");
    println!("{}", answer.trim_end());
    Ok(())
}
