//! How much memory a loaded model takes.

use std::io::Read;
use std::process::Stdio;

use lapidary_testkit::repository;

use crate::support::lapidary;

/// Bytes of a process that are in memory, and the most that ever were.
fn resident(process: u32) -> Option<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    Some((bytes("VmRSS:")?, bytes("VmHWM:")?))
}

/// Weights are packed from mapped pages, which are given back: nothing stays in memory twice.
#[test]
fn a_loaded_model_takes_little_more_than_its_file() {
    let model = repository("models/fetched/gemma-3-270m-q4_k_m.gguf");
    let Ok(file) = std::fs::metadata(&model) else {
        eprintln!("skipped: {} is not there; run `cargo xtask fetch`", model.display());
        return;
    };
    let path = model.to_str().expect("UTF-8");
    let mut command = lapidary(&["run", "-m", path, "--raw", "-n", "200", "--ctx", "512", "Rome"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
    // A first byte of text: the model is loaded and has run.
    let mut first = [0];
    let heard = child.stdout.take().map(|mut out| out.read_exact(&mut first).map(|()| out));
    let found = resident(child.id());
    let _ = child.kill();
    let _ = child.wait();
    assert!(heard.is_some_and(|heard| heard.is_ok()), "it says something");
    let Some((now, most)) = found else {
        eprintln!("skipped: the system does not tell how much memory a process has");
        return;
    };
    eprintln!("{} MB, {} MB at most, file {} MB", now >> 20, most >> 20, file.len() >> 20);
    // The cache of 512 entries takes 9 MB, the program and its vocabulary the rest.
    let allowed = file.len() + file.len() / 4 + (9 << 20);
    assert!(now <= allowed, "{} MB of {}", now >> 20, allowed >> 20);
}
