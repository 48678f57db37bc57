//! `cargo xtask callgrind`: how many instructions a decoded and a read token of Pebble take, against
//! the counts that were accepted last.
//!
//! Instructions are counted by valgrind, which knows AVX2, on one thread. They do not depend on what
//! else the machine does, so a few per cent more are a change of the program. Starting up costs the
//! same in two runs of different lengths, and drops out of their difference.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

/// Where the accepted counts lie.
const ACCEPTED: &str = "xtask/callgrind.txt";
/// How far a count may be from the accepted one.
const TOLERANCE: f64 = 0.03;
const SENTENCE: &str = "The capital of France is Paris. ";

/// Something whose instructions are counted: a short run, a longer one, and what is in between.
struct Stretch {
    name: &'static str,
    /// How often the sentence is in the prompt, and how many tokens follow.
    short: (usize, u32),
    long: (usize, u32),
    /// Tokens, or sentences, that the longer run has more.
    more: u64,
}

const STRETCHES: [Stretch; 2] = [
    Stretch { name: "decoded-token", short: (1, 8), long: (1, 40), more: 32 },
    Stretch { name: "read-sentence", short: (4, 1), long: (24, 1), more: 20 },
];

pub(crate) fn callgrind() -> anyhow::Result<()> {
    let accept = accepts()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    ensure!(valgrind.is_ok_and(|s| s.success()), "counting instructions needs valgrind");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "-p", "lapidary"]).current_dir(&root);
    ensure!(cargo.status().context("cargo did not start")?.success(), "lapidary does not build");
    let mut counts = Vec::new();
    for Stretch { name, short, long, more } in STRETCHES {
        let count = (instructions(&root, long)? - instructions(&root, short)?) / more;
        println!("{name}: {count} instructions");
        counts.push((name, count));
    }
    if accept {
        let lines = counts.iter().fold(String::new(), |mut lines, (name, count)| {
            let _ = writeln!(lines, "{name} {count}");
            lines
        });
        return Ok(std::fs::write(root.join(ACCEPTED), lines)?);
    }
    compare(&root.join(ACCEPTED), &counts)
}

/// Whether new counts are to be kept.
fn accepts() -> anyhow::Result<bool> {
    let words: Vec<_> = std::env::args().skip(2).collect();
    match words.as_slice() {
        [] => Ok(false),
        [option] if option == "--accept" => Ok(true),
        _ => bail!("callgrind takes --accept and nothing else"),
    }
}

/// Instructions of one run of the built-in model.
fn instructions(root: &Path, (sentences, tokens): (usize, u32)) -> anyhow::Result<u64> {
    let program: PathBuf = root.join("target/release/lapidary");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["run", "--raw", "--device", "cpu", "--threads", "1", "--isa", "avx2"])
        .args(["-n", &tokens.to_string(), &SENTENCE.repeat(sentences)])
        .output()
        .context("valgrind did not start")?;
    let told = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "the run failed:\n{told}");
    let count = told.lines().find_map(|line| line.split("Collected :").nth(1));
    let count = count.with_context(|| format!("valgrind counted nothing:\n{told}"))?;
    count.trim().parse().context("valgrind's count is no number")
}

fn compare(file: &Path, counts: &[(&str, u64)]) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    let accepted = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let mut off = String::new();
    for &(name, count) in counts {
        let before = accepted(name).with_context(|| format!("{ACCEPTED} has no {name}"))?;
        let change = count as f64 / before as f64 - 1.0;
        if change.abs() > TOLERANCE {
            let _ = writeln!(off, "{name}: {before} before, {count} now, {:+.1} %", 100.0 * change);
        }
    }
    ensure!(
        off.is_empty(),
        "{off}counts are more than {:.0} % off; if that is meant, run `cargo xtask callgrind --accept` \
         and commit {ACCEPTED}",
        100.0 * TOLERANCE
    );
    Ok(())
}
