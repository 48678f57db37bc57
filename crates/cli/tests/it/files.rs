//! Making files, as a person types it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use lapidary_testkit::Checkpoint;

use crate::support::{lapidary, object, refused, said};

/// A made-up checkpoint in a folder, and a place for files.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new(shape: Checkpoint) -> Self {
        let desk = Self { folder: tempfile::tempdir().expect("there is room") };
        let checkpoint = desk.folder.path().join("checkpoint");
        fs::create_dir(&checkpoint).expect("there is room");
        shape.write(&checkpoint, 1);
        desk
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("names are UTF-8").to_owned()
    }

    fn text(&self, name: &str, words: &str) -> String {
        fs::write(self.path(name), words).expect("there is room");
        self.path(name)
    }
}

#[test]
fn from_a_folder_to_a_small_file_that_runs_and_is_verified() {
    let desk = Desk::new(Checkpoint::TINY);
    let (folder, large, small) =
        (desk.path("checkpoint"), desk.path("l.gguf"), desk.path("s.gguf"));
    let report = object(&["convert", &folder, "-o", &large, "--json"]);
    assert!(report["bits_per_weight"].as_f64() > Some(16.0));
    said(&["quantize", &large, &small, "q4_k_m"]);
    for file in [&large, &small] {
        let verdict = said(&["info", "-m", file, "--verify", &folder]);
        assert!(verdict.contains("blk.2.ffn_down.weight"), "{verdict}");
        said(&["run", "-m", file, "--raw", "-n", "4", "hello"]);
    }
    let (status, error) = refused(&["quantize", &small, &large, "Q4_0"]);
    assert_eq!(status, 1);
    assert!(error.contains("--requantize"), "{error}");
}

#[test]
fn a_file_of_another_checkpoint_is_not_verified() {
    let (desk, other) = (Desk::new(Checkpoint::TINY), Desk::new(Checkpoint::TINY));
    let file = desk.path("l.gguf");
    said(&["convert", &desk.path("checkpoint"), "-o", &file]);
    Checkpoint::TINY.write(Path::new(&other.path("checkpoint")), 2);
    let (status, error) = refused(&["info", "-m", &file, "--verify", &other.path("checkpoint")]);
    assert_eq!(status, 1);
    assert!(error.contains("are not what the source holds"), "{error}");
}

#[test]
fn what_is_no_mix_is_refused_with_the_choices() {
    let (status, error) = refused(&["quantize", "in.gguf", "out.gguf", "Q9_K"]);
    assert_eq!(status, 2);
    assert!(error.contains("Q9_K") && error.contains("Q4_K_M"), "{error}");
}

#[test]
fn a_killed_conversion_leaves_no_half_file_and_does_not_disturb_the_next() {
    let desk = Desk::new(Checkpoint { layers: 8, hidden: 1024, feed_forward: 4096, shards: 1 });
    let (folder, to) = (desk.path("checkpoint"), desk.path("x.gguf"));
    let unfinished = PathBuf::from(desk.path("x.gguf.unfinished"));
    let arguments = ["convert", &folder, "-o", &to, "--quant", "Q4_K_M", "--threads", "1"];
    let mut running = lapidary(&arguments).stdout(Stdio::null()).spawn().expect("it starts");
    let waited = Instant::now();
    while !unfinished.exists() && waited.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    running.kill().expect("it still runs: there are a hundred million numbers to go");
    running.wait().expect("it ends");
    assert!(unfinished.exists() && !Path::new(&to).exists());
    said(&arguments);
    assert!(!unfinished.exists() && Path::new(&to).exists());
    said(&["info", "-m", &to, "--verify", &folder]);
}

#[test]
fn importance_is_continued_and_used() {
    let desk = Desk::new(Checkpoint::TINY);
    let (model, to) = (desk.path("l.gguf"), desk.path("i.gguf"));
    said(&["convert", &desk.path("checkpoint"), "-o", &model]);
    let words = desk.text("text", &"a quick brown fox ".repeat(40));
    let arguments = ["imatrix", "-m", &model, "-f", &words, "-o", &to, "--chunk", "32"];
    let first = object(&[&arguments[..], &["--chunks", "3", "--json"]].concat());
    assert_eq!(first["chunks"], 3);
    let whole = object(&[&arguments[..], &["--json"]].concat());
    assert!(whole["chunks"].as_u64() > Some(3));
    let again = fs::read(&to).expect("it was written");
    fs::remove_file(&to).expect("it was written");
    said(&arguments);
    assert!(fs::read(&to).expect("it was written") == again, "continued as if never stopped");
    let small = desk.path("s.gguf");
    let report = object(&["quantize", &model, &small, "Q4_0", "--imatrix", &to, "--json"]);
    assert_eq!(report["with_importance"], 22);
    let other = desk.text("other", &"something else ".repeat(40));
    let (status, error) =
        refused(&["imatrix", "-m", &model, "-f", &other, "-o", &to, "--chunk", "32"]);
    assert_eq!(status, 2);
    assert!(error.contains("another text"), "{error}");
}

#[test]
fn a_size_or_a_divergence_can_be_asked_for() {
    let desk = Desk::new(Checkpoint::TINY);
    let (model, to) = (desk.path("l.gguf"), desk.path("s.gguf"));
    said(&["convert", &desk.path("checkpoint"), "-o", &model]);
    let words = desk.text("text", &"a quick brown fox ".repeat(20));
    let common = ["--text", &words, "--window", "32", "--windows", "2"];
    let quantize = |target: &[&str]| said(&[&["quantize", &model, &to], target, &common].concat());
    let shown = quantize(&["--target-size", "120K"]);
    assert!(shown.contains("divergence alone"), "{shown}");
    let bytes = object(&["info", "-m", &to, "--json"])["weight_bytes"].as_u64();
    assert!(bytes <= Some(120_000) && bytes > Some(100_000), "{bytes:?}");
    let shown = quantize(&["--target-kld", "0.05"]);
    let measured = shown.lines().find_map(|line| line.strip_prefix("divergence "));
    let measured = measured.and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    assert!(measured <= Some(0.05) && measured > Some(0.0), "{shown}");
    let (status, error) =
        refused(&[&["quantize", &model, &to, "--target-size", "1K"], &common[..]].concat());
    assert_eq!(status, 2);
    assert!(error.contains("--target-size"), "{error}");
}
