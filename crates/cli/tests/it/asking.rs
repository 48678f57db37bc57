//! The real binary, asked for more than a text: schemas, log-probabilities, vectors, penalties.

use serde_json::Value;

use crate::support::{QUESTION, fed, object, output, said, text};

/// Standard error of a run that is refused as wrong usage.
fn refused(arguments: &[&str]) -> String {
    let (status, message) = crate::support::refused(arguments);
    assert_eq!(status, 2, "{arguments:?}: {message}");
    message
}

/// A file that goes away with the value.
struct Temporary(std::path::PathBuf);

impl Temporary {
    fn new(name: &str, content: &str) -> Self {
        let file = format!("lapidary-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, content).expect("a temporary file");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// ollama #15260, #15416: a schema was dropped with thinking off, and JSON came fenced with it on.
#[test]
fn a_schema_holds_with_thinking_on_and_off() {
    let schema = r#"{"type":"object","required":["n","kind"],"additionalProperties":false,
        "properties":{"n":{"type":"integer","minimum":1,"maximum":9},"kind":{"enum":["city","sea"]}}}"#;
    let file = Temporary::new("schema.json", schema);
    for seed in ["0", "1"] {
        let settings = [
            vec!["-j", schema],
            vec!["-j", file.path(), "--think"],
            vec!["-j", schema, "--temp", "1.5", "--seed", seed],
            vec!["-j", schema, "--temp", "1.5", "--seed", seed, "--think"],
            vec!["-j", schema, "--raw", "--min-tokens", "3"],
        ];
        for setting in settings {
            let report = object(&[&["run", "--json", QUESTION], &setting[..]].concat());
            let answer = report["text"].as_str().expect("a text");
            let value: Value = serde_json::from_str(answer)
                .unwrap_or_else(|e| panic!("{setting:?}: {answer:?} is no JSON: {e}"));
            assert!(value["n"].as_u64().is_some_and(|n| (1..=9).contains(&n)), "{answer}");
            assert!(value["kind"] == "city" || value["kind"] == "sea", "{answer}");
            assert_eq!(value.as_object().map(|members| members.len()), Some(2), "{answer}");
            assert_eq!(report["finish_reason"], "stop");
        }
    }
}

#[test]
fn expressions_and_grammars_hold() {
    let regex = said(&["run", QUESTION, "--regex", "(Ulan|Paris) [0-9]{3}"]);
    let (city, digits) = regex.trim_end().split_once(' ').expect("a space");
    assert!((city == "Ulan" || city == "Paris") && digits.len() == 3, "{regex}");
    let gbnf = Temporary::new("yes.gbnf", "root ::= \"yes\" | \"no\"\n");
    let lark = Temporary::new("yes.lark", "start: \"yes\" | \"no\"\n");
    for file in [&gbnf, &lark] {
        let answer = said(&["run", QUESTION, "--grammar", file.path()]);
        assert!(answer == "yes\n" || answer == "no\n", "{answer}");
    }
}

#[test]
fn rules_that_cannot_be_enforced_are_refused_by_name() {
    let broken = Temporary::new("broken.gbnf", "root ::= thing\n");
    let cases: [(&[&str], &str); 6] = [
        (&["-j", r#"{"type":"array","uniqueItems":true}"#], "uniqueItems"),
        (&["-j", "/nowhere/schema.json"], "/nowhere/schema.json"),
        (&["-j", "{]"], "JSON"),
        (&["--regex", "("], "regular expression"),
        (&["--grammar", broken.path()], "`thing`"),
        (&["--regex", "a", "-j", "{}"], "cannot be used with"),
    ];
    for (rules, what) in cases {
        let message = refused(&[&["run", QUESTION], rules].concat());
        assert!(message.contains(what), "{rules:?}: {message}");
    }
}

/// AiDotNet #1888: usage and log-probabilities went on past the stop.
#[test]
fn tokens_and_log_probabilities_are_cut_at_the_stop() {
    let ask =
        |stop: &[&str]| object(&[&["run", "--json", "--logprobs", "1", QUESTION], stop].concat());
    let whole = ask(&[]);
    let ids = whole["token_ids"].as_array().expect("ids").clone();
    let pieces: Vec<_> = whole["logprobs"]
        .as_array()
        .expect("one each")
        .iter()
        .map(|l| l["token"].as_str())
        .collect();
    for stop in ["capital", "of Mong", "is ", ".", "The", "golia is Ulaan"] {
        let cut = ask(&["--stop", stop]);
        let text = cut["text"].as_str().expect("a text");
        let expected = whole["text"].as_str().expect("a text").split(stop).next();
        assert_eq!(Some(text), expected);
        assert_eq!(cut["finish_reason"], "stop");
        let kept = cut["token_ids"].as_array().expect("ids");
        assert_eq!(kept[..], ids[..kept.len()], "{stop}");
        assert_eq!(cut["logprobs"].as_array().map(Vec::len), Some(kept.len()), "{stop}");
        let spelled: String = pieces[..kept.len()].iter().flatten().copied().collect();
        assert!(spelled.starts_with(text), "{spelled:?} has all of {text:?}");
        let fewer: usize =
            pieces[..kept.len().saturating_sub(1)].iter().flatten().map(|p| p.len()).sum();
        assert!(kept.is_empty() || fewer < text.len(), "the last token brings text");
    }
}

#[test]
fn log_probabilities_come_with_every_token() {
    let report = object(&[
        "run",
        "--json",
        "--raw",
        "--logprobs",
        "3",
        "--prompt-logprobs",
        "2",
        "-n",
        "6",
        "The capital of France is",
    ]);
    let count = |key: &str| report[key].as_array().map_or(0, Vec::len);
    assert_eq!(count("logprobs"), count("token_ids"));
    assert_eq!(count("prompt_logprobs") as u64 + 1, report["prompt_tokens"].as_u64().unwrap());
    let each = |key: &str| report[key].as_array().unwrap().clone();
    for (entry, top) in each("logprobs")
        .iter()
        .map(|l| (l, 3))
        .chain(each("prompt_logprobs").iter().map(|l| (l, 2)))
    {
        let logprobs: Vec<_> = entry["top_logprobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|other| other["logprob"].as_f64().unwrap())
            .collect();
        assert!(logprobs.len() == top && logprobs.is_sorted_by(|a, b| a >= b), "{entry}");
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0, "{entry}");
    }
    // Greedy: what was chosen is the likeliest.
    assert!(each("logprobs").iter().all(|entry| entry["id"] == entry["top_logprobs"][0]["id"]));
    let message = refused(&["run", "--logprobs", "3", QUESTION]);
    assert!(message.contains("--json"), "{message}");
}

#[test]
fn penalties_and_biases_change_the_answer_and_bad_ones_are_refused() {
    let plain = said(&["run", QUESTION]);
    let report = object(&["run", "--json", QUESTION]);
    let first = report["token_ids"][0].as_u64().unwrap();
    for flags in [
        vec!["--logit-bias".to_owned(), format!("{first}-inf")],
        vec!["-l".to_owned(), format!("{first}-40")],
        ["--presence-penalty", "60"].map(str::to_owned).to_vec(),
        ["--frequency-penalty", "60"].map(str::to_owned).to_vec(),
        ["--repeat-penalty", "9", "--repeat-last-n", "30"].map(str::to_owned).to_vec(),
        ["--dry-multiplier", "90", "--dry-allowed-length", "1"].map(str::to_owned).to_vec(),
    ] {
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let answer = said(&[&["run", QUESTION, "-n", "40"], &flags[..]].concat());
        assert_ne!(answer, plain, "{flags:?}");
    }
    let cases: [(&[&str], &str); 8] = [
        (&["-l", "42"], "42"),
        (&["-l", "99999999+1"], "99999999"),
        (&["--presence-penalty", "101"], "presence_penalty"),
        (&["--frequency-penalty", "-101"], "frequency_penalty"),
        (&["--dry-multiplier", "101"], "dry_multiplier"),
        (&["--dry-multiplier", "1", "--dry-base", "0.5"], "dry_base"),
        (&["--dry-multiplier", "1", "--dry-sequence-breaker", "no such token"], "no such token"),
        (&["--xtc-probability", "2"], "xtc_probability"),
    ];
    for (flags, what) in cases {
        let message = refused(&[&["run", QUESTION], flags].concat());
        assert!(message.contains(what), "{flags:?}: {message}");
    }
}

fn numbers(line: &str) -> Vec<f32> {
    line.split(' ').map(|number| number.parse().expect("a number")).collect()
}

/// The row law, as seen by whoever embeds: the same text is the same vector in any company.
#[test]
fn a_text_has_the_same_vector_alone_and_in_company() {
    let texts = [
        "The capital of Mongolia.",
        "a",
        "What is a noun? It names a thing, as I said.",
        "Ulaanbaatar",
    ];
    for pooling in ["mean", "last"] {
        let together = said(&[&["embed", "--pooling", pooling], &texts[..]].concat());
        let together: Vec<_> = together.lines().collect();
        assert_eq!(together.len(), texts.len());
        for (text, line) in texts.iter().zip(&together) {
            assert_eq!(said(&["embed", "--pooling", pooling, text]).trim_end(), *line);
            let length: f32 = numbers(line).iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-5, "{length}");
        }
        assert_ne!(together[0], together[3]);
    }
}

#[test]
fn texts_to_embed_come_from_lines_and_files() {
    let expected = said(&["embed", "a", "the capital"]);
    let lines = Temporary::new("texts.jsonl", "\"a\"\n\n{\"text\": \"the capital\", \"id\": 7}\n");
    assert_eq!(said(&["embed", "--file", lines.path()]), expected);
    let out = fed(&["embed"], "a\nthe capital\n");
    assert_eq!(text(&out.stdout), expected);
    // More texts than are read at once, in order.
    let many: Vec<_> = ["a", "the capital"].into_iter().cycle().take(30).collect();
    let report = object(&[&["embed", "--json"], &many[..]].concat());
    let vectors = report["embeddings"].as_array().expect("a list");
    assert_eq!(vectors.len(), 30);
    for (i, vector) in vectors.iter().enumerate() {
        assert_eq!(vector["index"], i);
        assert_eq!(vector["embedding"], vectors[i % 2]["embedding"]);
    }
    let broken = Temporary::new("broken.jsonl", "\"a\"\n{\"words\": 1}\n");
    let out = output(&["embed", "--file", broken.path()]);
    assert!(!out.status.success() && text(&out.stderr).contains("line 2"));
    let out = output(&["embed", "--ctx", "8", &"long ".repeat(50)]);
    assert!(
        !out.status.success() && text(&out.stderr).contains("grow to 8"),
        "{}",
        text(&out.stderr)
    );
}
