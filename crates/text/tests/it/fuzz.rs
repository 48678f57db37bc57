//! The fuzz targets over a small corpus and its mutations.

use lapidary_text::{ChatTemplate, Control, Grammars, fuzz};

use crate::chat_template::PEBBLE;
use crate::grammar::JSON_GBNF;
use crate::support::{reference_text, specials, toy, toy_json};

/// A sequence without pattern, the same every time.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// `seed` with a few pieces changed, removed, doubled or moved.
fn mutate(seed: &[u8], noise: &mut Noise) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=noise.below(4) {
        let at = noise.below(data.len() + 1);
        let end = (at + noise.below(12)).min(data.len());
        match noise.below(5) {
            0 => drop(data.drain(at..end)),
            1 => data.insert(at, noise.below(256) as u8),
            2 => data.insert(at, b"{}[]\"%-<>|,:0915"[noise.below(16)]),
            3 => {
                let piece = data[at..end].to_vec();
                let to = noise.below(data.len() + 1);
                data.splice(to..to, piece);
            }
            _ => data.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << noise.below(8)),
        }
    }
    data
}

fn run<T>(target: impl Fn(&[u8]) -> T, seeds: &[Vec<u8>], rounds: usize) {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for seed in seeds {
        target(seed);
        for _ in 0..rounds {
            target(&mutate(seed, &mut noise));
        }
    }
}

#[test]
fn tokenizer_files_never_panic() {
    let toy = toy_json();
    let mut compact = toy.clone();
    compact["model"]["merges"] = serde_json::json!(["h e", "t he", "\n \n"]);
    let seeds = [toy.to_string(), compact.to_string(), "{\"model\":{}}".to_owned()];
    run(fuzz::tokenizer_json, &seeds.map(String::into_bytes), 1500);
}

#[test]
fn grammars_never_panic() {
    let seeds = [
        JSON_GBNF,
        include_str!("../corpus/grammar/repeats.gbnf"),
        include_str!("../corpus/grammar/nested.lark"),
        include_str!("../corpus/grammar/repeats.regex"),
        include_str!("../corpus/grammar/object.schema"),
        include_str!("../corpus/grammar/reference.schema"),
    ];
    let grammars = Grammars::new(&toy());
    let target = |data: &[u8]| fuzz::grammar(&grammars, data);
    run(target, &seeds.map(|seed| seed.as_bytes().to_vec()), 150);
}

#[test]
fn templates_never_panic() {
    let corpus = include_str!("data/jinja_snippets.json");
    let snippets: Vec<serde_json::Value> = serde_json::from_str(corpus).expect("it is JSON");
    let sources = snippets.iter().filter_map(|case| case["source"].as_str());
    let sources: Vec<_> = sources.map(|source| source.as_bytes().to_vec()).collect();
    run(fuzz::template, &sources, 40);
    let google = reference_text("fixtures/templates/gemma-4-31b-it.jinja");
    let whole = [PEBBLE.to_owned()].into_iter().chain(google).map(String::into_bytes);
    run(fuzz::template, &whole.collect::<Vec<_>>(), 1000);
}

#[test]
fn replies_never_panic() {
    let tokenizer = toy();
    let seeds = [
        "<|turn><|channel>thought\nhe<channel|>the <|tool_call>call:a{b:<|\"|>he<|\"|>}<tool_call|>",
        "<|channel>thought\n<channel|><channel|><|tool_call>call:a{<|tool_call>call:b{}",
        "thought\n<channel|><|channel>a<channel|><|channel>thou<|tool_call>ca<tool_call|>",
    ];
    let spelled = seeds.map(|seed| {
        let ids = tokenizer.encode(seed, Control::Honour);
        ids.iter().filter_map(|id| u8::try_from(id.0).ok()).collect()
    });
    run(|data| fuzz::reply(&tokenizer, data), &spelled, 3000);
}

#[test]
fn messages_never_panic() {
    let template = ChatTemplate::new(PEBBLE, &specials()).expect("Pebble's template is sound");
    let seeds = [
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":null}"}}]},{"role":"tool","tool_call_id":"1","content":{"x":[1]}}]"#,
        r#"[{"role":"system","content":[{"type":"text","text":"<|turn>"},{"type":"image_url","image_url":{"url":"x"}}]},{"role":"assistant","content":"<|channel>thought\nx<channel|>y","reasoning":"z"},{"role":"user","content":"b"}]"#,
    ];
    run(|data| fuzz::messages(&template, data), &seeds.map(|s| s.as_bytes().to_vec()), 3000);
}
