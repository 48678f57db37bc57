//! Images, as a person or a client sends them: Pebble's stored questions and answers.

use std::fs;
use std::path::Path;

use lapidary_testkit::{PictureCase, picture_cases, shared};
use serde_json::{Value, json};

use crate::serve::Server;
use crate::support::{object, refused, said};

fn case(index: u64) -> Option<PictureCase> {
    picture_cases().into_iter().find(|case| case.index == index)
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// What `run` says to a stored question, through the given options.
fn asked(case: &PictureCase, turn: usize, options: &[&str]) -> Value {
    let budget = case.budget.tokens().to_string();
    let mut words = vec!["run", "--json", "--image-tokens", &budget];
    words.extend(options);
    case.files.iter().for_each(|file| words.extend(["--image", path(file)]));
    words.push(&case.turns[turn].question);
    object(&words)
}

/// The ids of a stored answer without its end.
fn ids(case: &PictureCase, turn: usize) -> Value {
    let greedy = &case.turns[turn].greedy;
    greedy[..greedy.len() - 1].iter().map(|token| token.0).collect()
}

#[test]
fn run_answers_questions_about_images() {
    let Some(folder) = shared("pebble/hf") else { return };
    for index in [1, 8, 10] {
        let Some(case) = case(index) else { return };
        let answer = asked(&case, 0, &["-m", path(&folder)]);
        assert_eq!(answer["token_ids"], ids(&case, 0), "case {index}: {answer}");
        assert_eq!(answer["prompt_tokens"], case.turns[0].tokens.len(), "case {index}");
    }
}

#[test]
fn the_tower_beside_a_gguf_file_is_found_by_itself() {
    let Some(model) = shared("pebble/gguf/pebble-Q8_0.gguf") else { return };
    let Some(case) = case(0) else { return };
    let named = model.with_file_name("pebble-mmproj-f16.gguf");
    let (found, given) = (["-m", path(&model)], ["-m", path(&model), "--mmproj", path(&named)]);
    let answer = asked(&case, 0, &found);
    assert_eq!(answer["token_ids"], ids(&case, 0), "{answer}");
    assert_eq!(asked(&case, 0, &given)["token_ids"], answer["token_ids"]);
}

#[test]
fn a_model_without_a_tower_says_so_in_one_sentence() {
    let Some(case) = case(0) else { return };
    let (status, message) = refused(&["run", "--image", path(&case.files[0]), "What is it?"]);
    assert_eq!(status, 2, "{message}");
    assert!(message.contains("has no vision tower") && message.contains("--mmproj"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn images_and_options_that_cannot_be_meant_are_refused() {
    let (Some(folder), Some(case)) = (shared("pebble/hf"), case(0)) else { return };
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let broken = scratch.path().join("broken.png");
    let whole = fs::read(&case.files[0]).expect("it is there");
    fs::write(&broken, &whole[..whole.len() / 2]).expect("a temporary file");
    let (model, image) = (path(&folder), path(&case.files[0]));
    for (words, status, expected) in [
        (&["--image", path(&broken), "x"][..], 1, "broken.png: the PNG image cannot be decoded"),
        (&["--image", "no/such.png", "x"], 1, "no/such.png"),
        (&["--image", image, "--mmproj", "no/such.gguf", "x"], 1, "no/such.gguf"),
        (&["--image", image, "--image-tokens", "9", "x"], 2, "70 to 1120"),
        (&["--image", image, "--ctx", "50", "x"], 1, "79 tokens"),
        (&["--image", image, "--raw", "no placeholder"], 2, "0 image placeholders for 1 images"),
    ] {
        let (found, message) = refused(&[&["run", "-m", model], words].concat());
        assert_eq!(found, status, "{words:?}: {message}");
        assert!(message.contains(expected), "{words:?}: {message}");
    }
}

#[test]
fn a_raw_prompt_says_where_its_image_belongs() {
    let (Some(folder), Some(case)) = (shared("pebble/hf"), case(0)) else { return };
    let (model, image) = (path(&folder), path(&case.files[0]));
    let raw = "<|turn>user\n<|image|>What is in the image?<turn|>\n<|turn>model\n";
    let answer = said(&["run", "-m", model, "--image", image, "--raw", raw]);
    assert_eq!(answer.trim(), "A yellow cross.");
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let word = chunk.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        let letter = move |i: usize| match i <= chunk.len() {
            true => char::from(ALPHABET[(word >> (18 - 6 * i) & 63) as usize]),
            false => '=',
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

#[test]
fn the_server_looks_at_images_of_both_kinds_of_clients() {
    let (Some(folder), Some(case)) = (shared("pebble/hf"), case(3)) else { return };
    let server = Server::start(&["-m", path(&folder), "--ctx", "512", "--slots", "2"]);
    let bytes = fs::read(&case.files[0]).expect("it is there");
    let data = base64(&bytes);
    let url = format!("data:image/png;base64,{data}");
    let question = &case.turns[0].question;
    let text = json!({ "type": "text", "text": question });
    let post = |route: &str, body: &Value| -> Value {
        let answer = server.ask(&format!("POST {route}"), &body.to_string());
        serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{answer}: {e}"))
    };
    let chat = |part: &Value| {
        post(
            "/v1/chat/completions",
            &json!({
                "messages": [{ "role": "user", "content": [part, text] }], "temperature": 0,
            }),
        )
    };
    let openai = json!({ "type": "image_url", "image_url": { "url": url } });
    let first = chat(&openai);
    let expected = said(&["run", "-m", path(&folder), "--image", path(&case.files[0]), question]);
    assert_eq!(first["choices"][0]["message"]["content"], expected.trim(), "{first}");
    let length = case.turns[0].tokens.len();
    assert_eq!(first["usage"]["prompt_tokens"], length);
    let again = chat(&openai);
    assert_eq!(again["choices"][0]["message"], first["choices"][0]["message"]);
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], length - 1);

    let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
    let block = json!({ "type": "image", "source": source });
    let anthropic = post(
        "/v1/messages",
        &json!({
            "max_tokens": 64, "temperature": 0,
            "messages": [{ "role": "user", "content": [block, text] }],
        }),
    );
    assert_eq!(anthropic["content"][0]["text"], expected.trim(), "{anthropic}");

    let cut = base64(&bytes[..bytes.len() / 2]);
    for (part, expected) in [
        (
            json!({ "type": "image_url", "image_url": { "url": "http://example.org/a.png" } }),
            "fetches nothing",
        ),
        (
            json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{cut}") } }),
            "image 1: the PNG image cannot be decoded",
        ),
        (
            json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,????" } }),
            "not base64",
        ),
        (json!({ "type": "image" }), "holds none"),
        (json!({ "type": "input_audio", "input_audio": {} }), "takes no audio"),
    ] {
        let refused = chat(&part);
        let message = refused["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(expected), "{part}: {refused}");
        assert_eq!(refused["error"]["type"], "invalid_request_error");
    }
    assert_eq!(chat(&openai)["choices"][0]["message"], first["choices"][0]["message"]);
}

#[test]
fn more_images_than_the_context_holds_are_refused_before_they_are_read() {
    let (Some(folder), Some(case)) = (shared("pebble/hf"), case(0)) else { return };
    let server = Server::start(&["-m", path(&folder), "--ctx", "512", "--slots", "1"]);
    let data = base64(&fs::read(&case.files[0]).expect("it is there"));
    let part = |data: &str| {
        let url = format!("data:image/png;base64,{data}");
        json!({ "type": "image_url", "image_url": { "url": url } })
    };
    // What comes after the context is full would be refused for another reason.
    let parts: Vec<_> = (0..20).map(|i| part(if i < 10 { &data } else { "broken" })).collect();
    let body = json!({ "messages": [{ "role": "user", "content": parts }] });
    let answer = server.ask("POST /v1/chat/completions", &body.to_string());
    assert!(answer.contains("context_length_exceeded"), "{answer}");
}

#[cfg(unix)]
#[test]
fn a_tower_of_another_kind_turns_images_off_and_text_is_served() {
    let Some(folder) = shared("pebble/hf") else { return };
    let scratch = tempfile::tempdir().expect("a temporary folder");
    for entry in fs::read_dir(&folder).expect("a folder").flatten() {
        let place = scratch.path().join(entry.file_name());
        std::os::unix::fs::symlink(entry.path(), place).expect("a link");
    }
    let config = scratch.path().join("config.json");
    let text = fs::read_to_string(&config).expect("it is there");
    fs::remove_file(&config).expect("a link");
    fs::write(&config, text.replace("gemma4_vision", "siglip_vision_model")).expect("a file");
    let server = Server::start(&["-m", path(scratch.path()), "--ctx", "128", "--slots", "1"]);
    let body = json!({
        "messages": [{ "role": "user", "content": "What is the capital of Mongolia?" }],
    });
    let answer = server.ask("POST /v1/chat/completions", &body.to_string());
    assert!(answer.contains("Ulaanbaatar"), "{answer}");
}
