//! `cargo xtask contract`: the official clients of OpenAI and Anthropic against a real server.
//!
//! Besides, an independent judge of answers under schemas, and the chat page in a browser. The clients
//! come from PyPI and npm, into `target/contract`. The server is the release binary with
//! the built-in model.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, ensure};

/// Random schemas that are asked for.
const SCHEMAS: &str = "500";

pub(crate) fn contract() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let scripts = root.join("contract");
    let folder = root.join("target/contract");
    let python = python(&scripts, &folder)?;
    let script = javascript(&scripts, &folder)?;
    run(Command::new("cargo").args(["build", "--release", "--quiet", "-p", "lapidary"]))?;
    let server = Server::start(&root.join("target/release/lapidary"))?;
    run(Command::new(&python).arg(scripts.join("contract.py")).arg(&server.address))?;
    let schemas = scripts.join("schemas.py");
    run(Command::new(&python).arg(schemas).args([&*server.address, SCHEMAS]))?;
    page(&python, &scripts, &server)?;
    run(Command::new("node").arg(script).arg(&server.address))
}

/// The chat page in a browser, where there is one that can be driven.
fn page(python: &Path, scripts: &Path, server: &Server) -> anyhow::Result<()> {
    if Command::new("chromedriver").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: the chat page in a browser, for want of chromedriver");
        return Ok(());
    }
    run(Command::new(python).arg(scripts.join("page.py")).arg(&server.address))
}

/// A Python with the clients.
fn python(scripts: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let venv = folder.join("python");
    let python = venv.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let list = scripts.join("requirements.txt");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "-r"]).arg(list))?;
    Ok(python)
}

/// The script beside its client.
fn javascript(scripts: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let node = folder.join("node");
    fs::create_dir_all(&node).with_context(|| node.display().to_string())?;
    for file in ["package.json", "contract.mjs"] {
        fs::copy(scripts.join(file), node.join(file)).with_context(|| file.to_owned())?;
    }
    run(Command::new("npm").args(["install", "--silent", "--no-audit"]).current_dir(&node))?;
    Ok(node.join("contract.mjs"))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?} did not start"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}

/// A server on a free port, killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(binary: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(binary);
        command.args(["serve", "--port", "0"]).stderr(Stdio::piped());
        let mut process = command.spawn().context("the server did not start")?;
        let mut lines = BufReader::new(process.stderr.take().context("standard error is piped")?);
        let mut line = String::new();
        let address = loop {
            line.clear();
            ensure!(lines.read_line(&mut line)? > 0, "the server ended before it was ready");
            if let Some(at) = line.find("http://") {
                let word = line[at..].split_whitespace().next();
                break word.context("the address is a word")?.to_owned();
            }
        };
        // Somebody has to read the log, or the server would wait for it.
        std::thread::spawn(move || lines.lines().map_while(Result::ok).for_each(drop));
        Ok(Self { process, address })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which its clients have then noticed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
