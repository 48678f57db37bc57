//! Guessing ahead and watching, through the program: the text is the same.

use lapidary_testkit::shared;

use crate::support::{ANSWER, QUESTION, object, output, refused, said, text};

#[test]
fn a_text_is_the_same_whoever_guesses() {
    let mut drafters = vec!["ngram".to_owned(), "ngram:2".to_owned()];
    let paths = ["pebble/drafter_hf", "pebble/gguf/pebble-drafter-bf16.gguf"];
    let found = paths.iter().filter_map(|path| shared(path));
    drafters.extend(found.map(|path| path.display().to_string()));
    let model = lapidary_testkit::repository("models/pebble/pebble-Q8_0.gguf");
    drafters.push(model.display().to_string());
    for drafter in drafters {
        let run = object(&["run", "--json", "--draft", &drafter, QUESTION]);
        assert_eq!(run["text"], ANSWER, "{drafter}");
        assert!(run["accepted_tokens"].as_u64() <= run["drafted_tokens"].as_u64(), "{run}");
    }
    let small = object(&["run", "--json", "--draft", &model.display().to_string(), QUESTION]);
    assert!(small["accepted_tokens"].as_u64() > Some(3), "the model foresees itself: {small}");
}

#[test]
fn a_drafter_that_cannot_work_is_refused_by_name() {
    for (arguments, what) in [
        (&["--draft", "nowhere.gguf"][..], "nowhere.gguf"),
        (&["--draft", "ngram:0"], "ngram:N"),
        (&["--draft", "ngram", "--draft-tree", "2x2"], "--draft PATH"),
        (&["--draft-len", "3"], "--draft"),
        (&["--draft", "ngram", "--draft-tree", "two"], "2x4"),
    ] {
        let (_, error) = refused(&[&["run", QUESTION], arguments].concat());
        assert!(error.contains(what) && error.starts_with("error: "), "{arguments:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "one sentence: {error}");
    }
}

#[test]
fn a_watched_run_answers_the_same_and_leaves_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (trace, plain, ahead) = (file("trace.json"), file("plain"), file("ahead"));
    let out = output(&["run", "--trace", &trace, "--dump-layers", &plain, "--guard", QUESTION]);
    assert_eq!(text(&out.stdout).trim_end(), ANSWER);
    assert!(text(&out.stderr).contains("linear (matmul)"), "totals are shown");
    let events = std::fs::read_to_string(&trace).unwrap();
    let events: serde_json::Value = serde_json::from_str(&events).unwrap();
    assert!(events.as_array().is_some_and(|events| events.len() > 100));

    said(&["run", "--draft", "ngram", "--dump-layers", &ahead, QUESTION]);
    assert!(said(&["diff", &plain, &ahead]).starts_with("no difference"));
    let other = file("other");
    said(&["run", "--dump-layers", &other, "What is the capital of Peru?"]);
    let out = output(&["diff", &plain, &other]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stdout).contains("in the embeddings"), "{}", text(&out.stdout));
}

#[test]
fn a_dump_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad");
    std::fs::write(&bad, "no row\n").unwrap();
    let bad = bad.display().to_string();
    let (status, error) = refused(&["diff", &bad, &bad]);
    assert_eq!(status, 1);
    assert!(error.contains(&bad) && error.contains("line 1"), "{error}");
}

#[test]
fn guesses_with_a_given_luck_are_timed_beside_plain_decoding() {
    let plan = ["bench", "--shape", "moe-mini", "--device", "cpu", "--prefill", "0", "--json"];
    let luck =
        ["--decode", "6", "--repeats", "1", "--batch", "2", "--draft-len", "2", "--accept", "1"];
    let report = object(&[&plan[..], &luck[..]].concat());
    let results = report["results"].as_array().expect("a list");
    assert_eq!(results.len(), 2);
    assert!(results[0]["draft_len"].is_null());
    assert_eq!((&results[1]["draft_len"], &results[1]["accept"]), (&2.into(), &1.0.into()));
    assert!(results.iter().all(|result| result["tok_s"].as_f64() > Some(0.0)));
}

#[test]
fn luck_without_a_drafter_is_refused() {
    let out = output(&["bench", "--draft-len", "2", "--accept", "0.5"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("--draft PATH"));
}
