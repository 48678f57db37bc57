//! Models by the hub's names: pulled, found, listed, removed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Output;
use std::thread;

use serde_json::Value;

use crate::support::{ANSWER, QUESTION, lapidary, text};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const FILE: &str = "pebble-Q8_0.gguf";

/// A hub with one repository, made/pebble, that holds Pebble. Every request costs a connection.
fn hub() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    let pebble = lapidary_testkit::repository("models/pebble").join(FILE);
    let pebble = fs::read(pebble).expect("it is part of the repository");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that has left needs no answer.
            let _ = answer(stream, &pebble);
        }
    });
    url
}

fn answer(mut stream: TcpStream, pebble: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let range = lines.take_while(|line| !line.is_empty()).find_map(|line| {
        let lower = line.to_ascii_lowercase();
        let (from, to) = lower.strip_prefix("range: bytes=")?.split_once('-')?;
        Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?))
    });
    let list = format!("{{\"sha\":\"{COMMIT}\",\"siblings\":[{{\"rfilename\":\"{FILE}\"}}]}}");
    let (status, header, body) = match range {
        _ if first.contains("/api/models/made/pebble/") => (200, String::new(), list.as_bytes()),
        _ if !first.contains(&format!("/made/pebble/resolve/{COMMIT}/{FILE}")) => {
            (404, String::new(), &[][..])
        }
        None => (200, "ETag: \"pebble\"\r\n".to_owned(), pebble),
        Some((from, to)) => {
            let header = format!("Content-Range: bytes {from}-{to}/{}\r\n", pebble.len());
            (206, header, &pebble[from..=to])
        }
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} X\r\nConnection: close\r\n{header}")?;
    write!(stream, "Content-Length: {length}\r\n\r\n")?;
    stream.write_all(if first.starts_with("HEAD") { &[] } else { body })
}

/// Runs with a cache and nothing else of this machine's settings.
fn with(cache: &Path, hub: &str, arguments: &[&str]) -> Output {
    let mut command = lapidary(arguments);
    for other in ["HF_TOKEN", "HF_HOME", "HF_TOKEN_PATH", "http_proxy", "HTTP_PROXY", "ALL_PROXY"] {
        command.env_remove(other);
    }
    command.env("HF_HUB_CACHE", cache).env("HF_ENDPOINT", hub).env("HOME", cache);
    command.output().expect("the binary starts")
}

#[test]
fn a_model_of_the_hub_is_pulled_run_listed_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (cache, hub) = (folder.path().join("hub"), hub());
    let run = |arguments: &[&str]| {
        let out = with(&cache, &hub, arguments);
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let (status, answer, notes) = run(&["run", "-m", "made/pebble:q8_0", QUESTION]);
    assert_eq!((status, answer.trim()), (Some(0), ANSWER), "{notes}");
    assert!(notes.contains("made/pebble:q8_0 is not here; fetching it from http"), "{notes}");
    let (_, again, notes) = run(&["run", "-m", "made/pebble", QUESTION]);
    assert_eq!(again.trim(), ANSWER);
    assert!(!notes.contains("fetching"), "{notes}");
    let (_, path, _) = run(&["pull", "made/pebble:Q8_0"]);
    assert!(path.trim().ends_with(&format!("{COMMIT}/{FILE}")), "{path}");
    assert!(Path::new(path.trim()).is_file());
    let (_, listed, _) = run(&["list"]);
    assert!(listed.ends_with("MiB  made/pebble:Q8_0\n"), "{listed}");
    let (_, listed, _) = run(&["list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["models"][0]["files"][0]["path"], FILE);
    let (status, removed, _) = run(&["rm", "made/pebble:Q8_0"]);
    assert_eq!(status, Some(0));
    assert!(removed.starts_with(&format!("removed made/pebble/{FILE}\n")), "{removed}");
    assert_eq!(run(&["list"]).1, "");
}

#[test]
fn commands_that_only_look_do_not_fetch() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = with(folder.path(), "http://127.0.0.1:1", &["info", "-m", "made/pebble:Q8_0"]);
    let said = "error: made/pebble:Q8_0 is neither a file nor in the cache; \
        fetch it with `lapidary pull made/pebble:Q8_0`\n";
    assert_eq!((out.status.code(), &*text(&out.stderr)), (Some(1), said));
}

#[test]
fn a_missing_file_is_no_model_of_the_hub() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = with(folder.path(), "http://127.0.0.1:1", &["run", "-m", "models/none.gguf", "x"]);
    let said = text(&out.stderr);
    assert!(said.contains("models/none.gguf") && !said.contains("fetching"), "{said}");
}

#[test]
fn what_the_hub_lacks_is_said_in_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let hub = hub();
    for (name, said) in [
        ("made/none", "made/none (main) does not exist at HUB; check the spelling"),
        ("made/pebble:Q4_K_M", "made/pebble: there is no `Q4_K_M`; there is Q8_0"),
    ] {
        let out = with(folder.path(), &hub, &["pull", name]);
        let error = text(&out.stderr).replace(&hub, "HUB");
        assert_eq!(out.status.code(), Some(1), "{error}");
        assert!(
            error.starts_with(&format!("error: {said}")) && error.lines().count() == 1,
            "{error}"
        );
    }
    let (status, error) = crate::support::refused(&["pull", "../x"]);
    assert_eq!(status, 2, "{error}");
}
