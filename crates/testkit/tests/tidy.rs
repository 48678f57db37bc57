//! The house rules that a program can check: who may use whom, what files begin with, and what
//! neither code nor comments may contain.
//!
//! Every rule collects all offences before it fails, as `file:line: what`.

use std::fs;
use std::path::{Path, PathBuf};

use lapidary_testkit::repository;

/// A crate and what its manifest may name.
struct Crate {
    name: &'static str,
    /// Our crates, without their prefix.
    ours: &'static [&'static str],
    /// Other people's crates, apart from those for tests.
    theirs: &'static [&'static str],
}

/// Who may use whom. A crate that is not here may use nothing.
const CRATES: &[Crate] = &[
    Crate { name: "core", ours: &[], theirs: &["thiserror"] },
    Crate {
        name: "format",
        ours: &["core"],
        theirs: &["half", "memmap2", "serde_json", "thiserror"],
    },
    Crate {
        name: "text",
        ours: &["core"],
        theirs: &[
            "llguidance",
            "minijinja",
            "minijinja-contrib",
            "serde_json",
            "thiserror",
            "tokenizers",
        ],
    },
    Crate { name: "backend-cpu", ours: &["core"], theirs: &["half"] },
    Crate { name: "backend-cuda", ours: &["core"], theirs: &["cudarc", "half", "thiserror"] },
    Crate { name: "cache", ours: &["core"], theirs: &["thiserror"] },
    Crate { name: "media", ours: &["core"], theirs: &["image", "thiserror"] },
    Crate { name: "model", ours: &["core"], theirs: &["thiserror"] },
    Crate { name: "engine", ours: &["core", "model"], theirs: &["thiserror"] },
    Crate { name: "convert", ours: &["core", "format", "model"], theirs: &["rayon", "thiserror"] },
    Crate { name: "hub", ours: &[], theirs: &["serde_json", "sha2", "thiserror", "ureq"] },
    Crate {
        name: "measure",
        ours: &["core", "engine", "model"],
        theirs: &["serde_json", "thiserror"],
    },
    Crate {
        name: "server",
        ours: &["core", "engine", "media", "text"],
        theirs: &[
            "axum",
            "futures-core",
            "hyper",
            "hyper-util",
            "prometheus-client",
            "rustls",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
            "tokio",
            "tokio-rustls",
            "tower-http",
            "tracing",
            "utoipa",
        ],
    },
    Crate {
        name: "cli",
        ours: &[
            "backend-cpu",
            "backend-cuda",
            "cache",
            "convert",
            "core",
            "engine",
            "format",
            "hub",
            "measure",
            "media",
            "model",
            "server",
            "text",
        ],
        theirs: &["clap", "ctrlc", "indicatif", "reedline", "serde_json", "tracing-subscriber"],
    },
    Crate {
        name: "testkit",
        ours: &[
            "backend-cpu",
            "backend-cuda",
            "cache",
            "core",
            "engine",
            "format",
            "measure",
            "media",
            "model",
            "text",
        ],
        theirs: &["safetensors", "serde_json"],
    },
];

/// What any crate's tests may use.
const FOR_TESTS: &[&str] =
    &["half", "insta", "proptest", "safetensors", "serde_json", "sha2", "tempfile"];
/// Our crates that only a crate's tests may use: a device is compared with the CPU, on whole models;
/// damaged files are given to everyone who reads them.
const OURS_FOR_TESTS: &[(&str, &[&str])] = &[
    ("backend-cuda", &["backend-cpu", "cache", "engine", "format", "model"]),
    ("convert", &["backend-cpu", "cache", "measure"]),
    ("format", &["model", "text"]),
];

/// Crates that may contain unsafe code.
const UNSAFE: &[&str] = &["backend-cpu", "backend-cuda", "format"];
/// Folders whose code may ask the environment: people start it.
const AT_THE_EDGE: &[&str] =
    &["crates/backend-cuda/examples/", "crates/cli/", "crates/testkit/", "xtask/"];
/// The few places that look for reference material beside the repository.
const WALKERS: &[&str] = &[
    "crates/format/tests/promises/shared.rs",
    "crates/testkit/src/shared.rs",
    "crates/text/tests/it/support.rs",
    "xtask/src/gpu.rs",
];
/// Statics with interior mutability that are meant: a count of allocations, and what fuzzers make once
/// for all inputs.
const STATICS: &[&str] =
    &["crates/format/tests/measured/counting.rs", "fuzz/fuzz_targets/grammar.rs"];

/// A text file of the repository.
struct File {
    /// Relative to the repository, with forward slashes.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|kind| kind == "rs")
    }

    /// Code that is not only there to test other code.
    fn is_product(&self) -> bool {
        self.is_rust() && self.path.contains("/src/") && !self.path.starts_with("crates/testkit/")
    }

    /// The name of the crate that it belongs to.
    fn owner(&self) -> &str {
        let inside = self.path.strip_prefix("crates/").unwrap_or("");
        inside.split('/').next().unwrap_or("")
    }

    /// Numbered lines.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// Numbered lines before the tests at the end of the file.
    fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
    }

    fn offence(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

/// Every text file that is ours.
fn files() -> Vec<File> {
    const KINDS: &[&str] = &["rs", "toml", "md", "py", "cu", "cuh", "yml", "sh"];
    let root = repository("");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') || name == "target";
            if path.is_dir() && !hidden {
                folders.push(path);
            } else if path.extension().is_some_and(|k| KINDS.iter().any(|kind| *kind == k)) {
                let relative = path.strip_prefix(&root).expect("the walk began there");
                let text = fs::read_to_string(&path);
                found.push(File {
                    path: relative.to_string_lossy().replace('\\', "/"),
                    text: text.unwrap_or_else(|e| panic!("{}: {e}", path.display())),
                });
            }
        }
    }
    assert!(found.len() > 100, "only {} files: the walk went wrong", found.len());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|entry| entry.expect("a folder can be listed").path()).collect()
}

#[track_caller]
fn none(offences: Vec<String>) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

/// A dependency as a manifest names it.
struct Dependency {
    line: usize,
    name: String,
    for_tests: bool,
    /// Whether the line above says why.
    explained: bool,
}

/// The dependencies of a manifest whose sections are lines in brackets and whose entries begin at
/// the start of a line.
fn dependencies(file: &File) -> Vec<Dependency> {
    let mut found = Vec::new();
    let (mut section, mut above) = ("", "");
    for (line, text) in file.lines() {
        if text.starts_with('[') {
            section = text;
        } else if section.ends_with("dependencies]") && text.contains('=') {
            let name = text.split(['=', '.', ' ']).next().unwrap_or("");
            if !name.is_empty() && !text.starts_with('#') {
                found.push(Dependency {
                    line,
                    name: name.trim_matches('"').to_owned(),
                    for_tests: section.contains("dev-"),
                    explained: is_comment(above),
                });
            }
        }
        above = text;
    }
    found
}

fn is_comment(line: &str) -> bool {
    line.starts_with("# ") && line.len() > 8
}

fn manifests() -> Vec<File> {
    files().into_iter().filter(|file| file.path.ends_with("Cargo.toml")).collect()
}

#[test]
fn crates_use_what_the_table_allows() {
    let mut offences = Vec::new();
    for file in manifests().iter().filter(|file| file.path.starts_with("crates/")) {
        let Some(known) = CRATES.iter().find(|known| known.name == file.owner()) else {
            offences.push(file.offence(1, "a crate that the table does not know"));
            continue;
        };
        for Dependency { line, name, for_tests, .. } in dependencies(file) {
            let allowed = match name.strip_prefix("lapidary-") {
                Some("testkit") => for_tests,
                Some(ours) if known.ours.contains(&ours) => true,
                Some(ours) => for_tests && may_test_with(known.name, ours),
                None if for_tests => FOR_TESTS.contains(&&*name),
                None => known.theirs.contains(&&*name),
            };
            if !allowed {
                offences.push(file.offence(line, &format!("may not use {name}")));
            }
        }
    }
    none(offences);
}

fn may_test_with(crate_name: &str, ours: &str) -> bool {
    OURS_FOR_TESTS.iter().any(|(name, allowed)| *name == crate_name && allowed.contains(&ours))
}

#[test]
fn dependencies_say_why() {
    let mut offences = Vec::new();
    for file in manifests() {
        for Dependency { line, name, explained, .. } in dependencies(&file) {
            let ours = name.starts_with("lapidary-") || file.path == "Cargo.toml";
            if !ours && !explained {
                offences.push(file.offence(line, &format!("{name} has no reason above it")));
            }
        }
        let described = file.text.contains("\ndescription = \"");
        if file.path.starts_with("crates/") && !described {
            offences.push(file.offence(1, "no description"));
        }
    }
    none(offences);
}

#[test]
fn files_say_what_they_are_for() {
    let rust = files().into_iter().filter(File::is_rust);
    let silent = rust.filter(|file| !file.text.starts_with("//! "));
    none(silent.map(|file| file.offence(1, "does not begin with a //! line")).collect());
}

#[test]
fn unsafe_code_lives_in_three_crates() {
    let mut offences = Vec::new();
    for file in files().iter().filter(|file| file.is_rust() && !is_this_test(file)) {
        if UNSAFE.contains(&file.owner()) {
            continue;
        }
        let root = file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
        let ours = file.path.starts_with("crates/");
        if root && ours && !file.text.contains("#![forbid(unsafe_code)]") {
            offences.push(file.offence(1, "does not forbid unsafe code"));
        }
        for (line, text) in file.lines() {
            if ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| text.contains(word)) {
                offences.push(file.offence(line, "unsafe code"));
            }
        }
    }
    none(offences);
}

#[test]
fn only_the_edge_asks_the_environment() {
    let mut offences = Vec::new();
    for file in files().iter().filter(|file| file.is_rust()) {
        if AT_THE_EDGE.iter().any(|folder| file.path.starts_with(folder)) {
            continue;
        }
        for (line, text) in file.lines() {
            if ["env::", "option_env!"].iter().any(|word| text.contains(word)) {
                offences.push(file.offence(line, "asks the environment"));
            }
        }
    }
    none(offences);
}

#[test]
fn nothing_global_changes() {
    const CHANGING: &[&str] = &["Atomic", "Cell", "Lock", "Mutex", "Once", "UnsafeCell"];
    let mut offences = Vec::new();
    for file in files().iter().filter(|file| file.is_rust() && !is_this_test(file)) {
        if STATICS.contains(&&*file.path) {
            continue;
        }
        for (line, text) in file.lines() {
            let code = text.trim_start().trim_start_matches("pub ").trim_start_matches("(crate) ");
            let is_static = code.starts_with("static ") && code.contains(':');
            let changes = CHANGING.iter().any(|word| code.contains(word));
            let always = code.starts_with("static mut ") || code.starts_with("thread_local!");
            if (is_static && changes) || always {
                offences.push(file.offence(line, "a global that can change"));
            }
        }
    }
    none(offences);
}

#[test]
fn kernels_name_a_twin() {
    let is_kernel = |file: &&File| {
        let cpu = file.path.starts_with("crates/backend-cpu/src/kernels/");
        let cuda = file.path.starts_with("crates/backend-cuda/") && file.path.ends_with(".cu");
        cpu || cuda
    };
    let all = files();
    let kernels: Vec<_> = all.iter().filter(is_kernel).collect();
    assert!(kernels.len() >= 4, "kernels were found");
    let header = |file: &File| {
        let comments = file.text.lines().take_while(|line| line.starts_with("//"));
        comments.collect::<String>().to_lowercase()
    };
    let alone = kernels.iter().filter(|file| !header(file).contains("twin"));
    none(alone.map(|file| file.offence(1, "the header names no twin")).collect());
}

/// The comment on a line of code, if there is one.
fn comment<'a>(file: &File, line: &'a str) -> Option<&'a str> {
    let mark = if file.is_rust() || file.path.ends_with(".cu") { "//" } else { "# " };
    let at = line.find(mark)?;
    let address = line[..at].ends_with(':');
    (!address).then(|| &line[at..])
}

/// Whether four digits that look like a year are followed by a month.
fn has_date(text: &str) -> bool {
    let digits = |s: &[u8]| s.iter().all(u8::is_ascii_digit);
    text.as_bytes().windows(8).any(|w| {
        w.starts_with(b"20") && digits(&w[..4]) && w[4] == b'-' && digits(&w[5..7]) && w[7] == b'-'
    })
}

#[test]
fn comments_know_no_history() {
    const WORDS: &[&str] = &[
        "todo",
        "fixme",
        "hack:",
        "xxx",
        "we now",
        "now uses",
        "no longer used",
        "no longer needed",
        "previously",
        "formerly",
        "used to be",
        "has been replaced",
        "legacy",
        "for now",
        "temporary workaround",
        "issue #",
        "see pr",
    ];
    let mut offences = Vec::new();
    let code = |file: &&File| !file.path.ends_with(".md") && !is_this_test(file);
    for file in files().iter().filter(code) {
        for (line, text) in file.lines() {
            let Some(comment) = comment(file, text) else { continue };
            let lower = comment.to_lowercase();
            if let Some(word) = WORDS.iter().find(|word| lower.contains(**word)) {
                offences.push(file.offence(line, &format!("a comment says `{word}`")));
            }
            if has_date(comment) {
                offences.push(file.offence(line, "a comment has a date"));
            }
        }
    }
    none(offences);
}

#[test]
fn paths_are_relative_and_stay_inside() {
    const MACHINES: &[&str] = &["/home/", "/root/", "/work/", "/Users/", "/mnt/"];
    const BESIDE: &str = "../shared";
    let mut offences = Vec::new();
    for file in files().iter().filter(|file| !is_this_test(file)) {
        for (line, text) in file.lines() {
            if let Some(path) = MACHINES.iter().find(|path| text.contains(**path)) {
                offences.push(file.offence(line, &format!("a path of one machine: {path}")));
            }
            if text.contains(BESIDE) && !WALKERS.contains(&&*file.path) {
                offences.push(file.offence(line, "looks beside the repository"));
            }
        }
    }
    none(offences);
}

#[test]
fn libraries_are_quiet_and_do_not_give_up() {
    const WORDS: &[(&str, &str)] = &[
        (".unwrap()", "`expect` says why it holds"),
        ("println!", "libraries print nothing"),
        ("dbg!", "libraries print nothing"),
        ("todo!", "nothing is left undone"),
        ("unimplemented!", "nothing is left undone"),
    ];
    let mut offences = Vec::new();
    for file in files().iter().filter(|file| file.is_product()) {
        if AT_THE_EDGE.iter().any(|folder| file.path.starts_with(folder)) {
            continue;
        }
        for (line, text) in file.product_lines() {
            let code = text.split("//").next().unwrap_or("");
            for (word, why) in WORDS.iter().filter(|(word, _)| code.contains(word)) {
                offences.push(file.offence(line, &format!("{word}: {why}")));
            }
        }
    }
    none(offences);
}

#[test]
fn lints_are_expected_not_allowed() {
    let mut offences = Vec::new();
    for file in files().iter().filter(|file| file.is_rust() && !is_this_test(file)) {
        for (line, text) in file.lines() {
            if ["[allow(", "[ignore"].iter().any(|word| text.trim_start().contains(word)) {
                offences.push(file.offence(line, "`expect` with a reason, and no ignored tests"));
            }
        }
    }
    none(offences);
}

/// This file has to spell out what it looks for.
fn is_this_test(file: &File) -> bool {
    file.path == "crates/testkit/tests/tidy.rs"
}
