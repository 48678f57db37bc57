//! Input that cannot be meant: one clear sentence and the right exit status.

use std::fs;
use std::process::{Output, Stdio};

use lapidary_testkit::repository;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::support::{fed, lapidary, output, refused, text};

/// Files that are no models, and a folder that is none.
fn broken() -> (TempDir, Vec<String>) {
    let folder = tempdir().expect("a temporary folder");
    let whole = fs::read(repository("models/pebble/pebble-Q8_0.gguf")).expect("it is there");
    let files: [(&str, &[u8]); 5] = [
        ("cut-in-the-keys.gguf", &whole[..100_000]),
        ("cut-in-a-tensor.gguf", &whole[..12_000_000]),
        ("empty.gguf", b""),
        ("text.gguf", b"hello"),
        ("noise.gguf", &[0x9a; 64]),
    ];
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("a temporary file");
    }
    fs::create_dir(folder.path().join("nothing")).expect("a temporary folder");
    let names = files.iter().map(|(name, _)| *name).chain(["nothing", "absent.gguf"]);
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let paths = names.map(path).collect();
    (folder, paths)
}

/// Checks one sentence, the status, and the object for programs.
#[track_caller]
fn one_sentence(out: &Output, status: i32, names: &str) {
    let message = text(&out.stderr);
    assert_eq!(out.status.code(), Some(status), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("error: ") && message.contains(names), "{message}");
}

#[track_caller]
fn told_in_json(out: &Output, status: i32, names: &str) {
    one_sentence(out, status, names);
    let report: Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    let error = &report["error"];
    let said = ["message", "hint"].map(|key| error[key].as_str().expect("text").to_owned());
    assert!(said.concat().contains(names), "{error}");
    assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{error}");
}

#[test]
fn a_broken_model_is_one_sentence_from_every_command() {
    let (_folder, paths) = broken();
    let commands: [&[&str]; 6] = [
        &["run", "--json", "hi"],
        &["tokenize", "--json", "hi"],
        &["info", "--json"],
        &["eval", "--json", "--kld", "x"],
        &["bench", "--json"],
        &["chat"],
    ];
    for path in &paths {
        for command in commands {
            let out = output(&[command, &["-m", path]].concat());
            if command[0] == "chat" {
                one_sentence(&out, 1, path);
            } else {
                told_in_json(&out, 1, path);
            }
        }
    }
}

#[test]
fn wrong_usage_is_told_to_programs_in_json() {
    let cases: [(&[&str], &str); 8] = [
        (&["run", "--json", "--kv", "bad", "x"], "choose f32, f16"),
        (&["run", "--json", "--tmp", "1", "x"], "'--temp'"),
        (&["run", "--json", "--kv", "layers:0-99=f16", "x"], "this model has layers 0 to 5"),
        (&["run", "--json", "--ctx", "99999999999", "x"], "99999999999"),
        (&["info", "--json", "--ctx", "1"], "2 to 8192"),
        (&["eval", "--json"], "--kld <TEXT>"),
        (&["bench", "--json", "--repeats", "0"], "0 is not in 1.."),
        (&["bench", "--json", "--prefill", "99999"], "8192"),
    ];
    for (arguments, names) in cases {
        told_in_json(&output(arguments), 2, names);
    }
}

#[test]
fn a_negative_number_is_a_number() {
    let cases = [
        ("--temp", "temperature is -1"),
        ("--min-p", "min_p is -1"),
        ("--top-k", "-1"),
        ("--ctx", "-1"),
        ("-n", "-1"),
        ("--seed", "-1"),
    ];
    for (option, names) in cases {
        let (status, message) = refused(&["run", option, "-1", "x"]);
        assert_eq!(status, 2, "{message}");
        assert!(message.contains(names) && !message.contains("unexpected"), "{option}: {message}");
    }
}

#[test]
fn an_empty_prompt_is_refused_rather_than_made_up() {
    one_sentence(&output(&["run", ""]), 2, "the prompt is empty");
    one_sentence(&fed(&["run"], ""), 2, "the prompt is empty");
    one_sentence(&output(&["run"]), 2, "the prompt is empty");
    told_in_json(&fed(&["run", "--json"], "\n"), 2, "the prompt is empty");
}

#[cfg(unix)]
#[test]
fn a_closed_standard_input_is_an_empty_prompt() {
    let binary = env!("CARGO_BIN_EXE_lapidary");
    let mut shell = std::process::Command::new("sh");
    let out = shell.args(["-c", &format!("{binary} run <&-")]).output().expect("a shell");
    one_sentence(&out, 2, "the prompt is empty");
}

#[test]
fn text_that_is_not_utf_8_is_refused_by_its_source() {
    let folder = tempdir().expect("a temporary folder");
    let file = folder.path().join("prompt.txt");
    fs::write(&file, [0xff, 0xfe, b'a']).expect("a temporary file");
    let path = file.to_str().expect("UTF-8");
    one_sentence(&output(&["run", "--prompt-file", path]), 1, path);
    one_sentence(&output(&["eval", "--kld", path]), 1, path);
    one_sentence(&fed(&["run"], [0xff]), 1, "standard input");
    one_sentence(&fed(&["tokenize"], [0xff]), 1, "standard input");
    let chat = fed(&["chat"], [0xff]);
    let last = text(&chat.stderr).lines().last().map(str::to_owned);
    assert_eq!(chat.status.code(), Some(1));
    assert!(last.is_some_and(|line| line.starts_with("error: standard input: ")));
}

#[cfg(unix)]
#[test]
fn an_argument_that_is_not_utf_8_is_one_sentence() {
    use std::os::unix::ffi::OsStrExt;
    let mut command = lapidary(&["run"]);
    let out = command.arg(std::ffi::OsStr::from_bytes(b"a\xffb")).output().expect("it starts");
    one_sentence(&out, 2, "invalid UTF-8");
}

#[test]
fn questions_without_answers_are_no_result() {
    let folder = tempdir().expect("a temporary folder");
    let file = folder.path().join("answers.jsonl");
    fs::write(&file, "").expect("a temporary file");
    let path = file.to_str().expect("UTF-8");
    one_sentence(&output(&["eval", "--answers", path]), 1, "holds no answers");
    fs::write(&file, "{\"a\":1}").expect("a temporary file");
    one_sentence(&output(&["eval", "--answers", path]), 1, "line 1: `prompt_ids`");
}

#[test]
fn a_template_that_is_none_is_refused_by_name() {
    let folder = tempdir().expect("a temporary folder");
    let file = folder.path().join("chat.jinja");
    fs::write(&file, "{% if %}").expect("a temporary file");
    let path = file.to_str().expect("UTF-8");
    one_sentence(&output(&["run", "--chat-template", path, "hi"]), 1, path);
    fs::write(&file, "{{ bos_token }}{{ messages[0].content }}").expect("a temporary file");
    let thinks = output(&["run", "--think", "--chat-template", path, "hi"]);
    one_sentence(&thinks, 2, "knows no thinking");
    let tools = folder.path().join("tools.json");
    fs::write(&tools, "[{\"type\":\"function\"}]").expect("a temporary file");
    let tools = tools.to_str().expect("UTF-8");
    let calls = output(&["chat", "--tools", tools, "--chat-template", path]);
    one_sentence(&calls, 2, "knows no tools");
}

/// A device that takes nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_sentence_and_no_panic() {
    let commands: [&[&str]; 4] =
        [&["info"], &["run", "hi"], &["tokenize", "hi"], &["tokenize", "--json", "hi"]];
    for command in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
        let out =
            lapidary(command).stdout(full).stderr(Stdio::piped()).output().expect("it starts");
        one_sentence(&out, 1, "standard output");
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_is_no_panic() {
    let binary = env!("CARGO_BIN_EXE_lapidary");
    let mut shell = std::process::Command::new("sh");
    let line = format!("{binary} info --tensors | head -1");
    let out = shell.args(["-c", &line]).output().expect("a shell");
    assert_eq!(text(&out.stderr), "");
    assert!(text(&out.stdout).starts_with("model "));
}

#[test]
fn a_gemma_3_without_a_template_answers_in_its_family_format() {
    let Some(file) = lapidary_testkit::fetched("gemma-3-270m-q4_k_m.gguf") else { return };
    let path = file.to_str().expect("UTF-8");
    let question = "What is the capital of France?";
    let rendered = format!("<start_of_turn>user\n{question}<end_of_turn>\n<start_of_turn>model\n");
    let answer = |arguments: &[&str]| {
        let out = output(&[&["run", "--json", "-n", "4", "-m", path], arguments].concat());
        let report: Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
        ((report["token_ids"].clone(), report["prompt_tokens"].clone()), text(&out.stderr))
    };
    let (templated, note) = answer(&[question]);
    assert_eq!(templated, answer(&["--raw", &rendered]).0);
    assert!(note.contains("the published one of Gemma 3 is used"), "{note}");
}
