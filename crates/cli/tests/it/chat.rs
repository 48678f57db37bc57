//! Conversations over standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{ANSWER, QUESTION, fed, lapidary, refused, text};

const FRANCE: &str = "What is the capital of France?";
const PARIS: &str = "The capital of France is Paris.";

/// What comes of typing these lines, greedily.
fn typed(more: &[&str], lines: &[&str]) -> Output {
    let arguments: Vec<_> = ["chat", "--temp", "0"].iter().chain(more).copied().collect();
    fed(&arguments, lines.join("\n"))
}

/// What a conversation that goes well says.
fn said(more: &[&str], lines: &[&str]) -> String {
    let out = typed(more, lines);
    assert!(out.status.success(), "{lines:?}: {}", text(&out.stderr));
    text(&out.stdout)
}

/// A file that is gone when it is dropped.
struct Temporary(std::path::PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("lapidary-{}-{name}", std::process::id())))
    }

    fn with(name: &str, content: &str) -> Self {
        let file = Self::new(name);
        std::fs::write(&file.0, content).expect("a temporary file");
        file
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A test that failed may not have written it.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn every_line_is_answered() {
    assert_eq!(said(&[], &[QUESTION, "", FRANCE]), format!("{ANSWER}\n{PARIS}\n"));
}

/// The number before `word` in the statistics.
fn number(stats: &str, word: &str) -> usize {
    let words: Vec<_> = stats.split_whitespace().collect();
    let at = words.iter().position(|w| *w == word).expect("the word is there");
    words[at - 1].parse().expect("a number stands before it")
}

#[test]
fn a_second_turn_reads_only_what_is_new() {
    let shown = said(&[], &[QUESTION, "/stats", FRANCE, "/stats"]);
    let stats: Vec<_> = shown.split(ANSWER).nth(1).expect("an answer").split(PARIS).collect();
    let words = |stats: &str| stats.replace("of them", "cached-of");
    let (first, second) = (words(stats[0]), words(stats[1]));
    // "context  N of 8192 tokens": prompt and answer together.
    let context = |stats: &str| {
        let line = stats.lines().find(|line| line.starts_with("context")).expect("a line");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number")
    };
    assert_eq!(number(&first, "cached-of"), 0, "{first}");
    assert_eq!(number(&second, "cached-of"), context(&first), "{second}");
}

#[test]
fn a_full_context_is_said_aloud_and_loses_the_oldest_turns_if_asked_to() {
    let lines = [QUESTION, FRANCE, "What is the capital of Japan?", "/save /dev/stdout"];
    let out = typed(&["--ctx", "64", "--overflow", "drop-oldest"], &lines);
    assert!(text(&out.stderr).contains("(the context is full: forgot 1 turn, the oldest first)"));
    let shown = text(&out.stdout);
    assert!(shown.contains("The capital of Japan is Tokyo.\n"), "{shown}");
    let saved = shown.split_once('{').expect("a saved conversation").1;
    assert!(!saved.contains("Mongolia") && saved.contains("France"), "{saved}");
}

#[test]
fn a_full_context_stops_the_question_but_not_the_chat() {
    let lines = [QUESTION, FRANCE, "What is the capital of Japan?", "/undo", "And of Peru?"];
    let out = typed(&["--ctx", "64"], &lines);
    assert_eq!(out.status.code(), Some(1), "something went wrong on the way");
    let complaint = text(&out.stderr);
    assert!(complaint.contains("there is room for 63; /undo or /reset"), "{complaint}");
    assert_eq!(text(&out.stdout).lines().count(), 3, "one answer follows");
}

#[test]
fn an_answer_that_fills_the_context_ends_there() {
    let out = typed(&["--ctx", "22"], &[QUESTION, "/reset", QUESTION]);
    assert!(out.status.success());
    assert_eq!(text(&out.stderr).matches("the context is full: the answer ends here").count(), 2);
}

#[test]
fn tools_are_called_and_answered() {
    let tools = Temporary::with(
        "tools.json",
        r#"[{"type":"function","function":{"name":"get_weather",
            "description":"Get the current weather in a city.","parameters":{"type":"object",
            "properties":{"city":{"type":"string","description":"The city name."}},
            "required":["city"]}}}]"#,
    );
    let command = format!("/tools {}", tools.path());
    let lines = [&*command, "What is the weather in La Paz?", "sunny", "/save /dev/stdout"];
    let out = typed(&[], &lines);
    let shown = text(&out.stdout);
    assert!(shown.starts_with("call get_weather({\"city\":\"La Paz\"})\n"), "{shown}");
    assert!(text(&out.stderr).contains("what you type next is the result of get_weather"));
    let saved: serde_json::Value = serde_json::from_str(&shown[shown.find("{\n").expect("JSON")..])
        .expect("what is saved is JSON");
    assert_eq!(saved["messages"][2]["role"], "tool");
    assert_eq!(saved["messages"][2]["name"], "get_weather");
    assert_eq!(saved["messages"][2]["content"], "sunny");
    assert_eq!(saved["messages"][3]["role"], "assistant");
}

#[test]
fn a_saved_conversation_goes_on_elsewhere() {
    let file = Temporary::new("saved.json");
    let save = format!("/save {}", file.path());
    let whole = said(&["--system", "Be brief."], &[QUESTION, &save, FRANCE]);
    let after = |shown: &str| shown.strip_prefix(&format!("{ANSWER}\n")).map(str::to_owned);
    let expected = after(&whole).expect("the first answer");
    assert_eq!(said(&["--load", file.path()], &[FRANCE]), expected);
    assert_eq!(said(&[], &[&format!("/load {}", file.path()), FRANCE]), expected);
}

#[test]
fn lines_that_belong_together_are_one_question() {
    let split = ["What is the capital \\", "of Mongolia?"];
    let quoted = ["\"\"\"What is the capital ", "of Mongolia?", "\"\"\""];
    let one = said(&[], &["\"\"\"What is the capital \nof Mongolia?\"\"\""]);
    assert_eq!(one.lines().count(), 1, "{one}");
    assert_eq!(said(&[], &split), one);
    assert_eq!(said(&[], &quoted), one);
}

#[test]
fn an_answer_given_again_is_another_draw() {
    let draw = ["Define a word.", "/regen", "/regen", "/regen", "/stats"];
    let out = fed(&["chat", "-n", "12", "--temp", "1.5"], draw.join("\n"));
    assert!(out.status.success());
    let shown = text(&out.stdout);
    let answers: std::collections::BTreeSet<_> = shown.lines().take(4).collect();
    assert!(answers.len() > 1, "{shown}");
}

#[test]
fn chat_draws_as_the_model_recommends_unless_told_otherwise() {
    let draw = |seed: &str, more: &[&str]| {
        let arguments = ["chat", "-n", "12", "--seed", seed];
        let arguments: Vec<_> = arguments.iter().chain(more).copied().collect();
        text(&fed(&arguments, "Define a word.").stdout)
    };
    let differs = |more: &[&str]| (1..6).any(|s| draw(&s.to_string(), more) != draw("0", more));
    assert!(differs(&[]));
    assert!(!differs(&["--sampling", "greedy"]));
}

#[test]
fn a_mistake_is_one_sentence_and_the_chat_goes_on() {
    let lines = ["/fly", "/undo", "/regen", "/stats", "/load /no/such/file", "/temp hot", QUESTION];
    let out = typed(&[], &lines);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(text(&out.stdout), format!("{ANSWER}\n"));
    let complaints = text(&out.stderr);
    let errors = complaints.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 6, "{complaints}");
}

#[test]
fn nothing_typed_is_no_error() {
    assert_eq!(said(&[], &[]), "");
    assert_eq!(said(&[], &["/quit", QUESTION]), "");
}

#[test]
fn a_pipe_sees_no_escape_codes() {
    let shown = said(&["--think"], &[QUESTION, "/help", "/stats"]);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn a_conversation_file_that_is_none_is_refused_before_anything_is_loaded() {
    let file = Temporary::with("broken.json", "{\"messages\": 7}");
    let (status, message) = refused(&["chat", "--load", file.path()]);
    assert_eq!(status, 1);
    assert_eq!(message, format!("error: {}: messages must be a list\n", file.path()));
    let (_, message) = refused(&["chat", "--tools", file.path()]);
    assert!(message.contains("is not a list of tools"), "{message}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_answer_and_not_the_chat() {
    let mut command = lapidary(&["chat", "--temp", "0", "--isa", "plain", "--threads", "1"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("it greets");
    // Minutes of work for the plainest kernels.
    writeln!(stdin, "{}", "word ".repeat(5000)).expect("it reads");
    std::thread::sleep(Duration::from_millis(500));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill is a command").success());
    line.clear();
    errors.read_line(&mut line).expect("it says so");
    assert_eq!(line, "(stopped)\n");
    writeln!(stdin, "{QUESTION}").expect("it reads on");
    drop(stdin);
    let out = child.wait_with_output().expect("it ends");
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), format!("{ANSWER}\n")));
}
