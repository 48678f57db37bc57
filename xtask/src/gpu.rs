//! Tests and benchmarks of the CUDA device, for this machine or one without Rust.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const CRATE: &str = "lapidary-backend-cuda";

/// What the tests read, of the repository and of the folder of fixtures beside it.
const TREE: [&str; 3] = ["crates/testkit/tests/data", "models/pebble", "shapes"];
const FIXTURES: [&str; 6] = [
    "fixtures/dense",
    "fixtures/ple",
    "pebble/hf",
    "pebble/golden/golden.safetensors",
    "pebble/gguf/pebble-Q8_0.gguf",
    "pebble/gguf/pebble-Q4_K_M.gguf",
];

/// Builds the tests and the benchmark, without symbols, into `target/gpu`, with what they read and
/// a script to run each. The folder is all that a machine with an NVIDIA GPU, its driver and NVRTC
/// needs.
pub(crate) fn pack() -> Result<()> {
    packed().map(|folder| println!("packed into {}", folder.display()))
}

/// Packs, then runs the tests here.
pub(crate) fn test() -> Result<()> {
    script(&packed()?, "gpu-test.sh")
}

/// Packs, then runs the benchmark here.
pub(crate) fn bench() -> Result<()> {
    script(&packed()?, "gpu-bench.sh")
}

fn script(folder: &Path, name: &str) -> Result<()> {
    let status = Command::new("sh").arg(folder.join(name)).status().context("sh")?;
    ensure!(status.success(), "{name} failed");
    Ok(())
}

fn packed() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let folder = root.join("target/gpu");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    strip(&built(&["test", "--no-run", "--test", "it"])?, &folder.join("it"))?;
    strip(&built(&["build", "--example", "shape"])?, &folder.join("shape"))?;
    for path in TREE {
        copy(&root.join(path), &folder.join("tree").join(path))?;
    }
    for path in FIXTURES {
        let from = root.join("../shared").join(path);
        if from.exists() {
            copy(&from, &folder.join("shared").join(path))?;
        } else {
            println!("without the fixture {path}: its tests will be skipped, which is a failure");
        }
    }
    std::fs::write(folder.join("root"), root.to_string_lossy().as_bytes())?;
    std::fs::write(folder.join("gpu-test.sh"), include_str!("gpu-test.sh"))?;
    std::fs::write(folder.join("gpu-bench.sh"), include_str!("gpu-bench.sh"))?;
    Ok(folder)
}

/// Runs cargo for the crate and returns the one executable that came of it.
fn built(args: &[&str]) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.args(args).args(["--release", "-p", CRATE, "--message-format", "json"]);
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cargo")?;
    ensure!(output.status.success(), "cargo {} failed", args.join(" "));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // One message a line; the last that names an executable is the one asked for.
    let path = |line: &str| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        rest.split_once('"').map(|(path, _)| PathBuf::from(path))
    };
    text.lines().rev().find_map(path).context("cargo named no executable")
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("strip").arg("-o").arg(to).arg(from).status().context("strip")?;
    ensure!(status.success(), "strip failed");
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        std::fs::create_dir_all(to)?;
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    let parent = to.parent().context("a file lies in a folder")?;
    std::fs::create_dir_all(parent)?;
    std::fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}
