//! Commands that work, one after the other.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{ANSWER, QUESTION, fed, lapidary, object, output, refused, said, text};

#[test]
fn the_built_in_model_answers() {
    assert_eq!(said(&["run", QUESTION]), format!("{ANSWER}\n"));
}

#[test]
fn json_tells_what_happened() {
    let report = object(&["run", "--json", QUESTION]);
    assert_eq!(report["text"], ANSWER);
    assert_eq!(report["finish_reason"], "stop");
    assert_eq!(report["seed"], 0);
    assert_eq!(report["kv"], "f16");
    assert_eq!(report["cached_tokens"], 0);
    assert!(report["prompt_tokens"].as_u64() > Some(5));
    assert!(report["token_ids"].as_array().is_some_and(|ids| ids.len() > 3));
    for key in ["prefill_tok_s", "decode_tok_s", "ttft_ms"] {
        assert!(report[key].as_f64() > Some(0.0), "{key} of {report}");
    }
    let bytes = &report["kv_bytes"];
    assert!(bytes["global"].as_u64() > Some(0) && bytes["sliding"].as_u64() > Some(0));
    assert!(report["device"].as_str().is_some_and(|device| device.starts_with("cpu (")));
}

#[test]
fn prompts_come_from_standard_input_and_files_too() {
    let out = fed(&["run"], format!("{QUESTION}\n"));
    assert_eq!(text(&out.stdout), format!("{ANSWER}\n"));

    let file = std::env::temp_dir().join(format!("lapidary-prompt-{}", std::process::id()));
    std::fs::write(&file, QUESTION).expect("a temporary file");
    let path = file.to_str().expect("UTF-8");
    assert_eq!(said(&["run", "--prompt-file", path]), format!("{ANSWER}\n"));
    std::fs::remove_file(&file).expect("it is there");
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let report = object(&["run", "--json", "--stop", " is Ul", QUESTION]);
    assert_eq!(report["text"], "The capital of Mongolia");
    assert_eq!(report["finish_reason"], "stop");
}

#[test]
fn the_token_limit_is_a_length() {
    let report = object(&["run", "--json", "-n", "3", QUESTION]);
    assert_eq!(report["finish_reason"], "length");
    assert_eq!(report["token_ids"].as_array().map(Vec::len), Some(3));
}

#[test]
fn raw_prompts_honour_special_tokens_and_begin_once() {
    let rendered = format!("<|turn>user\n{QUESTION}<turn|>\n<|turn>model\n");
    assert_eq!(said(&["run", "--raw", &rendered]), format!("{ANSWER}\n"));
    assert_eq!(said(&["run", "--raw", &format!("<bos>{rendered}")]), format!("{ANSWER}\n"));
}

#[test]
fn a_tool_call_is_taken_out_of_the_text() {
    let prompt = "<|turn>system\n<|tool>declaration:get_weather{description:<|\"|>Get the current \
        weather in a city.<|\"|>,parameters:{properties:{city:{description:<|\"|>The city name.\
        <|\"|>,type:<|\"|>STRING<|\"|>}},required:[<|\"|>city<|\"|>],type:<|\"|>OBJECT<|\"|>}}\
        <tool|><turn|>\n<|turn>user\nWhat is the weather in La Paz?<turn|>\n<|turn>model\n";
    let report = object(&["run", "--json", "--raw", prompt]);
    assert_eq!(report["text"], "");
    let call = serde_json::json!({ "name": "get_weather", "arguments": { "city": "La Paz" } });
    assert_eq!(report["tool_calls"], serde_json::json!([call]));
    assert_eq!(report["finish_reason"], "stop");
}

#[test]
fn control_tokens_in_a_prompt_are_spelled() {
    let honoured = object(&["tokenize", "--json", "--special", "<|turn>"]);
    let spelled = object(&["tokenize", "--json", "<|turn>"]);
    assert_eq!(honoured["token_ids"], serde_json::json!([5]));
    assert!(spelled["token_ids"].as_array().is_some_and(|ids| ids.len() > 1));
}

#[test]
fn a_seed_decides_a_warm_text() {
    let warm =
        |seed: &str| said(&["run", "--temp", "1.5", "--seed", seed, "-n", "24", "Define a word."]);
    assert_eq!(warm("7"), warm("7"));
    assert!((0..5).any(|seed| warm(&seed.to_string()) != warm("7")));
}

#[test]
fn every_instruction_set_regime_and_thread_count_says_the_same() {
    for isa in ["plain", "avx2", "avx512-vnni"] {
        let out = output(&["run", "--isa", isa, "--threads", "1", QUESTION]);
        let absent = text(&out.stderr).contains("this machine has no");
        assert!(absent || text(&out.stdout) == format!("{ANSWER}\n"), "{isa}: {out:?}");
    }
    for kv in ["f32", "tq8", "tq4", "hybrid:4", "global=tq:k6:v4,sliding=tq5,layers:0-1=f16"] {
        let report = object(&["run", "--json", "--kv", kv, QUESTION]);
        assert_eq!(report["text"], ANSWER, "{kv}");
        assert_eq!(report["kv"], kv);
    }
}

#[test]
fn info_shows_what_is_inside() {
    let report = object(&["info", "--json", "--ctx", "2048", "--kv", "tq4", "--tensors"]);
    assert_eq!(report["architecture"], "gemma4");
    assert_eq!(report["layers"], serde_json::json!({ "global": 2, "sliding": 4 }));
    assert_eq!(report["kv_bytes_per_slot"]["global"], 2 * 2048 * 2 * (256 + 8));
    assert!(report["tensors"].as_array().is_some_and(|tensors| tensors.len() > 100));
    assert!(said(&["info"]).contains("Q8_0"));
}

#[test]
fn wrong_usage_is_status_2_and_names_the_remedy() {
    let cases: [(&[&str], &str); 6] = [
        (&["run", "--kv", "tq7", QUESTION], "choose f32, f16"),
        (&["run", "--ctx", "999999", QUESTION], "2 to 8192"),
        (&["run", "--device", "tpu", QUESTION], "use cpu, cuda or cuda:N"),
        (&["run", "--stop", "", QUESTION], "leave it out"),
        (&["run", "--top-p", "2", QUESTION], "from 0 to 1"),
        (&["fly"], "unrecognized subcommand"),
    ];
    for (arguments, remedy) in cases {
        let (status, message) = refused(arguments);
        assert_eq!(status, 2, "{arguments:?}: {message}");
        assert!(message.starts_with("error: ") && message.contains(remedy), "{message}");
    }
}

#[test]
fn a_device_that_is_not_here_is_one_sentence() {
    let out = output(&["run", "--device", "cuda:9", QUESTION]);
    assert_eq!(out.status.code(), Some(1));
    let message = text(&out.stderr);
    assert!(message.starts_with("error: ") && message.lines().count() == 1, "{message}");
}

#[test]
fn a_missing_or_foreign_file_is_one_sentence_and_status_1() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for path in ["/no/such/model.gguf", manifest] {
        let (status, message) = refused(&["run", "-m", path, QUESTION]);
        assert_eq!(status, 1);
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.starts_with("error: ") && message.contains(path), "{message}");
    }
    let out = output(&["run", "--json", "-m", "/no/such/model.gguf", QUESTION]);
    let report: Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert_eq!(report["error"]["code"], "model_unreadable");
}

/// Four thousand sequences of that length take more memory than any machine has.
#[cfg(target_os = "linux")]
#[test]
fn what_does_not_fit_into_memory_is_refused_before_it_is_loaded() {
    let shape = ["bench", "--shape", "gemma4-31b", "--prefill", "200000", "--batch", "4096"];
    let (status, message) = refused(&shape);
    assert_eq!(status, 1);
    assert!(message.contains("do not fit") && message.contains("; use "), "{message}");
}

#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_counts() {
    let long = "word ".repeat(400);
    let (status, message) = refused(&["run", "--ctx", "64", &long]);
    assert_eq!(status, 1);
    assert!(message.contains("64") && message.contains("tokens"), "{message}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_cleanly_with_status_130() {
    // Minutes of work for the plainest kernels.
    let long = "word ".repeat(5000);
    let arguments = ["run", "--isa", "plain", "--threads", "1", &long];
    let mut child = lapidary(&arguments);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    std::thread::sleep(Duration::from_millis(700));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill is a command").success());
    let began = Instant::now();
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
    assert!(began.elapsed() < Duration::from_secs(10));
}
