//! `--prompt-cache` through the real binary: a later run begins where an earlier one left off, and
//! nothing that happens to the folder changes an answer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

fn lapidary(folder: Option<&Path>, kv: &str, prompt: &str, tokens: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lapidary"));
    command.args(["run", "--raw", "--json", "--kv", kv, "-n", tokens, prompt]);
    if let Some(folder) = folder {
        command.arg("--prompt-cache").arg(folder);
    }
    command.stdin(Stdio::null());
    command
}

/// The report and what was said on standard error.
fn run(folder: Option<&Path>, kv: &str, prompt: &str) -> (Value, String) {
    let Output { status, stdout, stderr } =
        lapidary(folder, kv, prompt, "12").output().expect("the binary starts");
    let said = String::from_utf8(stderr).expect("output is UTF-8");
    assert!(status.success(), "{said}");
    (serde_json::from_slice(&stdout).expect("one JSON object"), said)
}

fn cached(report: &Value) -> u64 {
    report["cached_tokens"].as_u64().expect("a number")
}

/// Some 400 tokens, more than three windows of Pebble.
fn story(seed: usize) -> String {
    let words = ["capital", "river", "Mongolia", "the", "weather", "of", "seven", "code"];
    (0..220).map(|i| words[(i * i + seed * i + seed) % 8]).collect::<Vec<_>>().join(" ")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    files
}

#[test]
fn a_later_run_begins_where_an_earlier_one_left_off() {
    for kv in ["f16", "tq:k5:v4"] {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = Some(folder.path());
        let prompt = story(1);
        let (cold, _) = run(None, kv, &prompt);
        let (first, said) = run(kept, kv, &prompt);
        assert_eq!((cached(&first), said.as_str()), (0, ""));
        let (second, said) = run(kept, kv, &prompt);
        let most = second["prompt_tokens"].as_u64().expect("a number") - 1;
        assert_eq!((cached(&second), said.as_str()), (most, ""), "all but the last token");
        let longer = format!("{prompt} and so on");
        let (third, _) = run(kept, kv, &longer);
        assert!(cached(&third) >= most - 8, "{}", cached(&third));
        assert_eq!(third["token_ids"], run(None, kv, &longer).0["token_ids"]);
        for warm in [first, second] {
            assert_eq!(warm["token_ids"], cold["token_ids"], "{kv}");
        }
    }
}

#[test]
fn what_belongs_to_another_regime_is_ignored_with_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = Some(folder.path());
    run(kept, "f16", &story(2));
    let before = files(folder.path());
    let (other, said) = run(kept, "tq8", &story(2));
    assert_eq!(cached(&other), 0);
    assert!(said.starts_with("warning: ") && said.contains("other models or --kv"), "{said}");
    assert!(before.iter().all(|file| file.exists()), "it is left alone");
}

/// Every region of a file, one byte at a time; each must be noticed, and none may change an answer.
#[test]
fn a_damaged_file_is_ignored_with_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = Some(folder.path());
    let (first, _) = run(kept, "f16", &story(3));
    let names = files(folder.path());
    let whole: Vec<_> = names.iter().map(|name| fs::read(name).expect("a file")).collect();
    let regions = [0, 9, 17, 26, 34, 41, 50, 57, 66, 74, 82, 93, 100, 4_000, usize::MAX];
    for region in regions {
        for (name, bytes) in names.iter().zip(&whole) {
            let mut damaged = bytes.clone();
            let at = region.min(bytes.len() - 1);
            damaged[at] ^= 0x41;
            fs::write(name, damaged).expect("a file");
        }
        let (report, said) = run(kept, "f16", &story(3));
        assert_eq!(report["token_ids"], first["token_ids"], "byte {region}");
        assert_eq!(cached(&report), 0, "byte {region}");
        assert!(said.starts_with("warning: "), "byte {region}: {said}");
    }
    for name in files(folder.path()) {
        fs::write(name, b"").expect("a file");
    }
    assert_eq!(run(kept, "f16", &story(3)).0["token_ids"], first["token_ids"], "all torn");
}

/// A run that is killed at any moment leaves whole files, and those it had left before.
#[test]
fn killing_a_run_loses_at_most_what_was_being_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = Some(folder.path());
    let expected: Vec<_> = (0..4).map(|seed| run(None, "f16", &story(seed)).0).collect();
    run(kept, "f16", &story(0));
    let saved = files(folder.path());
    for round in 0..16_u64 {
        let prompt = story(1 + round as usize % 3);
        let mut command = lapidary(kept, "f16", &prompt, "400");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary starts");
        sleep(Duration::from_millis(20 + round * round * 5));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        assert!(saved.iter().all(|file| file.exists()), "round {round}");
    }
    for (seed, expected) in expected.iter().enumerate() {
        let (report, said) = run(kept, "f16", &story(seed));
        assert_eq!(report["token_ids"], expected["token_ids"], "story {seed}");
        assert_eq!(said, "", "every file that is there is whole");
        assert!(seed > 0 || cached(&report) > 0);
    }
}

#[test]
fn a_budget_of_nothing_keeps_nothing_and_a_small_one_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    for (mib, most) in [("0", 0), ("1", 1 << 20)] {
        for seed in 0..3 {
            let mut command = lapidary(Some(folder.path()), "f32", &story(seed), "2");
            let out = command.args(["--prompt-cache-mib", mib]).output().expect("it starts");
            assert!(out.status.success());
        }
        let size = |file: &PathBuf| fs::metadata(file).expect("a file").len();
        let bytes: u64 = files(folder.path()).iter().map(size).sum();
        // Heads come on top of the entries.
        assert!(bytes <= most + most / 10, "{bytes} of {most}");
    }
}
