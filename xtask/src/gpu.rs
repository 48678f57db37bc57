//! Tests and benchmarks of the CUDA device, for this machine or one without Rust.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const CRATE: &str = "lapidary-backend-cuda";

/// What the tests read of the repository.
const TREE: [&str; 2] = ["crates/testkit/tests/data", "shapes"];
/// The model that is built in; the same file is a fixture.
const MODEL: &str = "models/pebble/pebble-Q8_0.gguf";
/// The test whose fixture is as large as all others together.
const LARGE: &str = "models::pebble";

/// A part of a pack: small enough to travel alone.
struct Part {
    name: &'static str,
    /// Of the folder of fixtures beside the repository.
    fixtures: &'static [&'static str],
    /// Which tests have their files here.
    tests: [&'static str; 2],
}

const PARTS: [Part; 2] = [
    Part {
        name: "1",
        fixtures: &[
            "fixtures/dense",
            "fixtures/ple",
            "pebble/golden/answers.jsonl",
            "pebble/gguf/pebble-Q4_K_M.gguf",
        ],
        tests: ["--skip", LARGE],
    },
    Part {
        name: "2",
        fixtures: &["pebble/hf", "pebble/golden/golden.safetensors"],
        tests: [LARGE, "--nocapture"],
    },
];

/// Builds the tests and the benchmark, without symbols, into `target/gpu`, in two parts, each with
/// what its tests read and a script to run each. A part is all that a machine with an NVIDIA GPU, its
/// driver and NVRTC needs.
pub(crate) fn pack() -> Result<()> {
    packed().map(|folder| println!("packed into {}", folder.display()))
}

/// Packs, then runs the tests here.
pub(crate) fn test() -> Result<()> {
    let folder = packed()?;
    PARTS.iter().try_for_each(|part| script(&folder.join(part.name), "gpu-test.sh"))
}

/// Packs, then runs the benchmark here.
pub(crate) fn bench() -> Result<()> {
    script(&packed()?.join(PARTS[0].name), "gpu-bench.sh")
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
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs)?;
    strip(&built(&["test", "--no-run", "--test", "it"])?, &programs.join("it"))?;
    strip(&built(&["build", "--example", "shape"])?, &programs.join("shape"))?;
    PARTS.iter().try_for_each(|part| part.pack(&root, &folder))?;
    Ok(folder)
}

impl Part {
    fn pack(&self, root: &Path, folder: &Path) -> Result<()> {
        let files = folder.join("files");
        copy(&folder.join("programs"), &files)?;
        for path in TREE {
            copy(&root.join(path), &files.join("tree").join(path))?;
        }
        for path in self.fixtures {
            let from = root.join("../shared").join(path);
            if from.exists() {
                copy(&from, &files.join("shared").join(path))?;
            } else {
                println!("without the fixture {path}: its tests will be skipped, a failure");
            }
        }
        std::fs::write(files.join("root"), root.to_string_lossy().as_bytes())?;
        std::fs::write(files.join("tests"), self.tests.join(" "))?;
        let part = folder.join(self.name);
        std::fs::create_dir_all(&part)?;
        std::fs::write(part.join("unpack.sh"), include_str!("gpu-unpack.sh"))?;
        std::fs::write(part.join("gpu-test.sh"), include_str!("gpu-test.sh"))?;
        std::fs::write(part.join("gpu-bench.sh"), include_str!("gpu-bench.sh"))?;
        std::fs::copy(root.join(MODEL), part.join("pebble-Q8_0.gguf")).context(MODEL)?;
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&files).arg("-cJf").arg(part.join("files.tar.xz")).arg(".");
        let status = tar.env("XZ_OPT", "-1 -T0").status().context("tar")?;
        ensure!(status.success(), "tar failed");
        std::fs::remove_dir_all(&files)?;
        Ok(())
    }
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
