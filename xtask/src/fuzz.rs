//! `cargo xtask fuzz`: every fuzz target for a while, guided by coverage.
//!
//! The stable compiler can instrument code for libFuzzer, so all that is needed besides is a C++
//! compiler. Found inputs stay in `fuzz/corpus`, failing ones in `fuzz/artifacts`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

/// A target and where its kept inputs lie.
const TARGETS: &[(&str, &str)] = &[
    ("gguf", "crates/format/tests/corpus"),
    ("safetensors", "crates/format/tests/corpus"),
    ("saved", "crates/format/tests/corpus"),
    ("image", "crates/media/tests/data"),
    ("config", "crates/model/tests/corpus"),
    ("imatrix", "crates/convert/tests/corpus/imatrix"),
    ("sentencepiece", "crates/convert/tests/corpus/sentencepiece"),
    ("tokenizer", "crates/text/tests/corpus/tokenizer"),
    ("template", "crates/text/tests/corpus/template"),
    ("grammar", "crates/text/tests/corpus/grammar"),
    ("reply", "crates/text/tests/corpus/reply"),
    ("request", "crates/server/tests/corpus/request"),
];
/// How long each target runs unless told otherwise.
const SECONDS: u32 = 30;
/// The machine that is built for. Naming it keeps build scripts free of instruments.
const MACHINE: &str = "x86_64-unknown-linux-gnu";
/// Counters at every edge, the places they belong to, and the operands of comparisons; checks that
/// a release build leaves out are made.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

pub(crate) fn fuzz() -> anyhow::Result<()> {
    let seconds = seconds()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let compiler = Command::new("c++").arg("--version").stdout(Stdio::null()).status();
    ensure!(compiler.is_ok_and(|status| status.success()), "fuzzing needs a C++ compiler, c++");
    build(&root.join("fuzz"))?;
    for &(target, corpus) in TARGETS {
        println!("== {target}, {seconds} s");
        run(&root, target, corpus, seconds)?;
    }
    Ok(())
}

/// What follows `--seconds`.
fn seconds() -> anyhow::Result<u32> {
    let words: Vec<_> = std::env::args().skip(2).collect();
    match words.as_slice() {
        [] => Ok(SECONDS),
        [option, n] if option == "--seconds" => {
            n.parse().ok().filter(|n| *n > 0).context("--seconds takes a number from 1 up")
        }
        _ => bail!("fuzz takes --seconds N and nothing else"),
    }
}

fn build(folder: &Path) -> anyhow::Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--bins", "--target", MACHINE]).current_dir(folder);
    let status = cargo.env("RUSTFLAGS", FLAGS).status().context("cargo did not start")?;
    ensure!(status.success(), "the fuzz targets do not build");
    Ok(())
}

/// Starts from the kept inputs and what earlier runs found; new inputs go to the latter.
fn run(root: &Path, target: &str, corpus: &str, seconds: u32) -> anyhow::Result<()> {
    let found = folder(root, "corpus", target)?;
    let failing = folder(root, "artifacts", target)?;
    let binary = root.join("fuzz/target").join(MACHINE).join("release").join(target);
    let mut command = Command::new(binary);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", failing.display()));
    command.args(["-rss_limit_mb=1024", "-timeout=10", "-verbosity=0", "-print_final_stats=1"]);
    command.arg(found).arg(root.join(corpus));
    let status = command.status().with_context(|| format!("{target} did not start"))?;
    ensure!(status.success(), "{target} fails: the input is in {}", failing.display());
    Ok(())
}

fn folder(root: &Path, kind: &str, target: &str) -> anyhow::Result<PathBuf> {
    let folder = root.join("fuzz").join(kind).join(target);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}
