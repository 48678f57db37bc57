//! Grammars: whatever a model chooses among the tokens that are allowed, the text conforms.

use std::time::{Duration, Instant};

use lapidary_core::{Constraint, Next, TokenId};
use lapidary_text::{Control, GrammarError, Grammars, Guide, Rules, Thinking, Tokenizer};
use serde_json::{Value, json};

use crate::support::toy;

/// A vocabulary and its grammars.
struct Bench {
    tokenizer: Tokenizer,
    grammars: Grammars,
}

impl Bench {
    fn new() -> Self {
        let tokenizer = toy();
        Self { grammars: Grammars::new(&tokenizer), tokenizer }
    }

    fn compile(&self, rules: Rules<'_>) -> Guide {
        self.grammars.compile(rules, Thinking::Never).unwrap_or_else(|e| panic!("{rules:?}: {e}"))
    }

    fn refusal(&self, rules: Rules<'_>) -> String {
        match self.grammars.compile(rules, Thinking::Never) {
            Ok(_) => panic!("{rules:?} is taken"),
            Err(error) => error.to_string(),
        }
    }

    fn schema_refusal(&self, schema: &Value) -> String {
        self.refusal(Rules::JsonSchema(schema))
    }

    /// Whether this is a whole text under the rules, cut into tokens in this one way.
    fn takes(&self, rules: Rules<'_>, text: &str) -> bool {
        let mut guide = self.compile(rules);
        let followed = guide.follow(&self.tokenizer.encode(text, Control::Spell));
        followed.is_ok() && guide.next().is_ok_and(|next| next.end)
    }

    /// A text of a model that chooses at random, hasty after a while.
    fn ramble(&self, guide: &Guide, seed: u64) -> String {
        let mut guide = guide.fork();
        let (mut noise, mut text) = (Noise(seed), Vec::new());
        for step in 0..3_000 {
            let next = guide.next().expect("the grammar goes on");
            let choices: Vec<_> = self.choices(&next);
            if next.end && (choices.is_empty() || step > 40 || noise.below(4) == 0) {
                return self.tokenizer.decode(&text);
            }
            assert!(!choices.is_empty(), "stuck after {:?}", self.tokenizer.decode(&text));
            let closes = |token: &&TokenId| {
                let bytes = self.tokenizer.bytes(**token);
                bytes == b"<channel|>" || bytes.first().is_some_and(|byte| b"\"}])".contains(byte))
            };
            let hasty = if step > 25 { choices.iter().find(closes) } else { None };
            let token = *hasty.unwrap_or_else(|| &choices[noise.below(choices.len())]);
            guide.advance(token).expect("what is allowed can be taken");
            text.push(token);
        }
        panic!("no end: {:?}", self.tokenizer.decode(&text));
    }

    fn choices(&self, next: &Next) -> Vec<TokenId> {
        let ids = (0..self.tokenizer.len() as u32 + 99).map(TokenId);
        ids.filter(|token| next.tokens.contains(*token)).collect()
    }
}

struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

type Judge = fn(&Value) -> bool;

fn has_only(object: &Value, keys: &[&str]) -> bool {
    object.as_object().is_some_and(|members| members.keys().all(|key| keys.contains(&key.as_str())))
}

/// ollama #8063, #15260, #16776: values outside an enumeration, a bound or a pattern. Each schema has
/// a judge that was written without it.
#[test]
fn values_keep_to_enumerations_bounds_and_patterns() {
    let person = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "age"],
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 5 },
            "age": { "type": "integer", "minimum": 3, "maximum": 117 },
            "tags": { "type": "array", "items": { "enum": ["red", "blue"] }, "maxItems": 2 },
        },
    });
    let is_person: Judge = |v| {
        let length = v["name"].as_str().map_or(0, |name| name.chars().count());
        let tags = v["tags"].as_array().cloned().unwrap_or_default();
        has_only(v, &["name", "age", "tags"])
            && (1..=5).contains(&length)
            && v["age"].as_i64().is_some_and(|age| (3..=117).contains(&age))
            && tags.len() <= 2
            && tags.iter().all(|tag| tag == "red" || tag == "blue")
    };
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": { "node": {
            "type": "object", "additionalProperties": false, "required": ["v"],
            "properties": { "v": { "type": "boolean" }, "next": { "$ref": "#/$defs/node" } },
        } },
    });
    fn is_node(v: &Value) -> bool {
        has_only(v, &["v", "next"]) && v["v"].is_boolean() && v.get("next").is_none_or(is_node)
    }
    let cases: Vec<(Value, Judge)> = vec![
        (person, is_person),
        (tree, is_node),
        (json!({ "enum": ["a", "the", 7, null] }), |v| {
            [json!("a"), json!("the"), json!(7), Value::Null].contains(v)
        }),
        (json!({ "const": { "a": [1] } }), |v| *v == json!({ "a": [1] })),
        (json!({ "type": "number", "minimum": -1.5, "exclusiveMaximum": 2.25 }), |v| {
            v.as_f64().is_some_and(|x| (-1.5..2.25).contains(&x))
        }),
        (json!({ "type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 80 }), |v| {
            v.as_i64().is_some_and(|x| x % 7 == 0 && (10..=80).contains(&x))
        }),
        (json!({ "type": "string", "pattern": "^[ab]{2,3}-[0-9]$" }), |v| {
            let text = v.as_str().unwrap_or_default();
            let (head, digit) = text.split_once('-').unwrap_or_default();
            let digits = digit.len() == 1 && digit.bytes().all(|b| b.is_ascii_digit());
            digits && (2..=3).contains(&head.len()) && head.bytes().all(|b| b"ab".contains(&b))
        }),
        (json!({ "type": "string", "format": "date" }), |v| {
            let parts: Vec<_> = v.as_str().unwrap_or_default().split('-').collect();
            let number = |i: usize| parts[i].parse::<u32>().unwrap_or(99);
            parts.len() == 3 && (1..=12).contains(&number(1)) && (1..=31).contains(&number(2))
        }),
        (
            json!({ "type": "array", "items": { "type": "null" }, "minItems": 2, "maxItems": 3 }),
            |v| {
                v.as_array()
                    .is_some_and(|a| (2..=3).contains(&a.len()) && a.iter().all(Value::is_null))
            },
        ),
        (
            json!({ "anyOf": [{ "type": "boolean" }, { "type": "integer", "maximum": 5, "minimum": 4 }] }),
            |v| v.is_boolean() || v.as_i64().is_some_and(|x| x == 4 || x == 5),
        ),
        (
            json!({ "type": ["object", "null"], "additionalProperties": { "type": "boolean" }, "maxProperties": 2 }),
            |v| {
                v.is_null()
                    || v.as_object()
                        .is_some_and(|o| o.len() <= 2 && o.values().all(Value::is_boolean))
            },
        ),
    ];
    let bench = Bench::new();
    for (schema, judge) in cases {
        let guide = bench.compile(Rules::JsonSchema(&schema));
        for seed in 0..60 {
            let text = bench.ramble(&guide, seed);
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|e| panic!("{schema}: {text:?} is no JSON: {e}"));
            assert!(judge(&value), "{schema}: {text:?} does not conform");
        }
    }
}

#[test]
fn a_json_object_is_an_object_and_nothing_else() {
    let bench = Bench::new();
    let guide = bench.compile(Rules::JsonObject);
    for seed in 0..200 {
        let text = bench.ramble(&guide, seed);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert!(value.is_object(), "{text:?}");
    }
    for text in ["[1]", "\"the\"", "```json\n{}\n```", " {}", "{} the", "{\"a\":1", "{'a':1}", ""] {
        assert!(!bench.takes(Rules::JsonObject, text), "{text:?}");
    }
    assert!(bench.takes(Rules::JsonSchema(&json!(true)), "[1]"), "`true` is any JSON");
    for text in ["{}", "{\"a\": [1, {\"b\": null}]}", "{\n  \"a\": 1\n}", "{\"the\":\"<|turn>\"}"] {
        assert!(bench.takes(Rules::JsonObject, text), "{text:?}");
    }
}

/// vllm #54881: a model that may go on with white space does so until it is cut off.
#[test]
fn nothing_follows_a_complete_value_and_white_space_is_bounded() {
    let bench = Bench::new();
    let schemas = [
        json!({ "type": "object" }),
        json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] }),
        json!({ "type": "array", "items": { "type": "boolean" } }),
        json!({ "type": "string" }),
        json!({ "enum": ["the", "a"] }),
        json!({ "type": "boolean" }),
    ];
    let texts = ["{}", "{\"a\":1}", "[true]", "\"h\"", "\"the\"", "true"];
    for (schema, text) in schemas.iter().zip(texts) {
        let mut guide = bench.compile(Rules::JsonSchema(schema));
        guide.follow(&bench.tokenizer.encode(text, Control::Spell)).unwrap();
        let next = guide.next().unwrap();
        assert!(next.end && next.tokens.is_empty(), "{schema}: {text:?} may go on");
        assert!(guide.advance(TokenId(1)).is_err(), "an end is no part of a text");
    }
    let spaces = |n| format!("{{{}}}", " ".repeat(n));
    assert!(bench.takes(Rules::JsonObject, &spaces(1)));
    assert!(!bench.takes(Rules::JsonObject, &spaces(2)));
    assert!(!bench.takes(Rules::JsonObject, &format!("{{\n{}}}", " ".repeat(21))));
}

#[test]
fn what_a_schema_asks_in_vain_is_refused_by_name() {
    let bench = Bench::new();
    let refused = [
        (json!({ "not": { "type": "string" } }), "not"),
        (json!({ "type": "array", "uniqueItems": true }), "uniqueItems"),
        (json!({ "if": { "type": "string" }, "then": { "minLength": 2 } }), "if"),
        (json!({ "type": "array", "contains": { "const": 1 } }), "contains"),
        (json!({ "type": "object", "dependentRequired": { "a": ["b"] } }), "dependentRequired"),
        (json!({ "type": "object", "propertyNames": { "maxLength": 3 } }), "propertyNames"),
        (json!({ "properties": { "a": { "not": {} } } }), "not"),
        (json!({ "type": "string", "format": "smell" }), "smell"),
        (json!({ "type": "thing" }), "thing"),
        (json!({ "x-guidance": { "lenient": true }, "not": {} }), "x-guidance"),
        (json!({ "$ref": "#/$defs/nowhere" }), "nowhere"),
        (json!({ "type": "integer", "minimum": 5, "maximum": 4 }), "5"),
        (json!({ "type": "string", "pattern": "(" }), "regex"),
        (json!(false), "false"),
        (json!([]), "object"),
    ];
    for (schema, name) in refused {
        let message = bench.schema_refusal(&schema);
        assert!(message.starts_with("the JSON schema cannot be enforced: "), "{message}");
        assert!(message.contains(name), "{schema}: {message}");
        assert!(message.len() < 500 && !message.contains('\n'), "{message}");
    }
}

#[test]
fn regular_expressions_hold_for_the_whole_text() {
    let bench = Bench::new();
    let cases = [
        (r"(yes|no)", &["yes", "no"][..], &["", "ye", "yes!", "Yes", " yes"][..]),
        (r"[0-9]{2,4}", &["00", "1234"], &["1", "12345", "12a"]),
        (r"a*", &["", "aaa"], &["b", "aab"]),
        (r"\d+\.\d", &["1.2", "00.0"], &["1.", "1,2", "1.23"]),
        (r"(?i)the é+", &["the éé", "THE É"], &["the e", "the "]),
        (r"/a\\b/", &["/a\\b/"], &["a\\b"]),
    ];
    for (regex, good, bad) in cases {
        good.iter()
            .for_each(|text| assert!(bench.takes(Rules::Regex(regex), text), "{regex} {text}"));
        bad.iter()
            .for_each(|text| assert!(!bench.takes(Rules::Regex(regex), text), "{regex} {text}"));
    }
    for broken in ["(", "[", "a{2", "*", r"\p{Nothing}", r"(?=a)b"] {
        let message = bench.refusal(Rules::Regex(broken));
        assert!(message.starts_with("the regular expression cannot be used: "), "{message}");
    }
}

#[test]
fn lark_grammars_hold() {
    let bench = Bench::new();
    let sums =
        "start: sum\nsum: term (\"+\" term)*\nterm: NUMBER | \"(\" sum \")\"\nNUMBER: /[0-9]+/\n";
    for text in ["1", "1+22", "(1+2)+3", "((0))"] {
        assert!(bench.takes(Rules::Lark(sums), text), "{text}");
    }
    for text in ["", "+", "1+", "(1", "1)", "1 + 2"] {
        assert!(!bench.takes(Rules::Lark(sums), text), "{text}");
    }
    for broken in ["", "start: nothing", "sum: \"a\"", "start: \"a", "start: ("] {
        let message = bench.refusal(Rules::Lark(broken));
        assert!(message.starts_with("the Lark grammar cannot be used: "), "{message}");
    }
}

/// llama.cpp's own grammar for JSON.
pub(crate) const JSON_GBNF: &str = r##"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"##;

#[test]
fn llama_cpp_grammars_hold() {
    let bench = Bench::new();
    let cases = [
        ("root ::= \"yes\" | \"no\" # or\n", &["yes", "no"][..], &["", "yesno", "y"][..]),
        ("root ::= [a-c]+ \"x\"?", &["a", "abcx"], &["x", "abcd", ""]),
        ("root ::= ab{2,3}\nab ::= \"ab\" |\n  \"c\"", &["abab", "ccab"], &["ab", "cccc"]),
        ("root ::= [^0-9\\]\\n]{2} .", &["abc", "é-\n"], &["a1c", "ab", "a]c"]),
        ("root ::= \"\\x41\\u00e9\\\"\\\\\" (\"t\" \"h\")* ", &["Aé\"\\", "Aé\"\\thth"], &["A"]),
        ("root ::= \"(\" root \")\" | \"a\"", &["a", "((a))"], &["(a", "a)", ""]),
        ("root ::= a-b A_b\na-b ::= \"a\"\nA_b ::= \"A\"", &["aA"], &["a", "A", "Aa"]),
        ("root ::= x (\",\" x)* \nx ::= [0-9]+ | \"[\" root \"]\"", &["1,[2,33]"], &["1,", "[1"]),
        ("root ::= \"a\"{2} \"b\"{,2} \"c\"{1,}", &["aac", "aabbcc"], &["ac", "aabbbc", "aab"]),
    ];
    for (gbnf, good, bad) in cases {
        good.iter()
            .for_each(|text| assert!(bench.takes(Rules::Gbnf(gbnf), text), "{gbnf}: {text}"));
        bad.iter()
            .for_each(|text| assert!(!bench.takes(Rules::Gbnf(gbnf), text), "{gbnf}: {text}"));
    }
    let guide = bench.compile(Rules::Gbnf(JSON_GBNF));
    for seed in 0..100 {
        let text = bench.ramble(&guide, seed);
        let value = serde_json::from_str::<Value>(&text);
        // A lone half of a surrogate pair is all that this grammar lets through.
        assert!(value.is_ok_and(|v| v.is_object()) || text.contains("\\u"), "{text:?}");
    }
    for text in ["{\"a\": [1, -2.5e3, {\"b\" : null}]}", "{\n  \"the\":\"\\\"\"}", "{}"] {
        assert!(bench.takes(Rules::Gbnf(JSON_GBNF), text), "{text}");
    }
    for text in ["[]", "{\"a\"}", "{\"a\":01}", "{\"a\":\"\n\"}", "{\"a\":tru}"] {
        assert!(!bench.takes(Rules::Gbnf(JSON_GBNF), text), "{text}");
    }
}

/// The limit that docs/generation.md names: between rules that lead back to themselves, what can be
/// read as one expression is.
#[test]
fn a_recursive_grammar_takes_expressions_for_as_long_as_they_go_on() {
    let bench = Bench::new();
    let gbnf = "root ::= \"ab\" | \"a\" rest\nrest ::= \"b\" root | \"h\"\n";
    assert!(bench.takes(Rules::Gbnf(gbnf), "ab") && bench.takes(Rules::Gbnf(gbnf), "ah"));
    assert!(!bench.takes(Rules::Gbnf(gbnf), "abab"), "`ab` was the whole of it");
    let joined = "root ::= [a-z]* \"b\" (\"(\" root \")\")?";
    assert!(bench.takes(Rules::Gbnf(joined), "abb(b)") && !bench.takes(Rules::Gbnf(joined), "a"));
}

#[test]
fn broken_llama_cpp_grammars_are_refused_with_the_line() {
    let bench = Bench::new();
    let deep = format!("root ::= {}", "(".repeat(1000));
    let cases = [
        ("", "line 1", "no rule `root`"),
        ("root ::= a", "line 1", "no rule `a`"),
        ("root ::= \"a\"\nb := \"c\"", "line 2", "`::=`"),
        ("root ::= \"a\"\n\nroot ::= \"b\"", "line 3", "twice"),
        ("root ::= \"a", "line 1", "ends inside"),
        ("root ::= [z-a]", "line 1", "empty"),
        ("root ::= (\"a\"", "line 1", "not closed"),
        ("root ::= \"a\"{3,2}", "line 1", "repetitions"),
        ("root ::= \"a\"{x}", "line 1", "repetitions"),
        ("root ::= <think> \"a\"", "line 1", "tokens"),
        ("root ::= \"\\q\"", "line 1", "escape"),
        ("root ::= \"a\" )", "line 1", "not expected"),
        (deep.as_str(), "line 1", "parentheses"),
    ];
    for (gbnf, line, what) in cases {
        let message = bench.refusal(Rules::Gbnf(gbnf));
        assert!(message.contains(line) && message.contains(what), "{gbnf}: {message}");
    }
}

/// Whatever is asked, an answer or a refusal comes soon, and no stack ends: a chain of 300 references
/// was enough to end the process.
#[test]
fn hostile_rules_are_compiled_or_refused_in_bounded_time() {
    let lines = |first: &str, line: &dyn Fn(usize) -> String, n: usize, last: &str| {
        format!("{first}\n{}{last}\n", (0..n).map(line).collect::<String>())
    };
    let chain =
        lines("root ::= r0", &|i| format!("r{i} ::= r{} \"a\"\n", i + 1), 9_000, "r9000 ::= \"b\"");
    let doubling =
        lines("root ::= r0", &|i| format!("r{i} ::= r{0} r{0}\n", i + 1), 60, "r60 ::= \"b\"");
    let lark = lines("start: r0", &|i| format!("r{i}: r{} \"a\"\n", i + 1), 9_000, "r9000: \"b\"");
    let terminals =
        lines("start: T0", &|i| format!("T{i}: T{} | \"a\"\n", i + 1), 9_000, "T9000: \"b\"");
    let definitions = |n: usize, definition: &dyn Fn(Value) -> Value| {
        let next = |i| definition(json!({ "$ref": format!("#/$defs/d{}", i + 1) }));
        let mut all: serde_json::Map<_, _> = (0..n).map(|i| (format!("d{i}"), next(i))).collect();
        all.insert(format!("d{n}"), json!({ "type": "null" }));
        json!({ "$ref": "#/$defs/d0", "$defs": all })
    };
    let references = definitions(7_000, &|next| next);
    let lists = definitions(4_000, &|next| json!({ "type": "array", "items": next }));
    let words: Vec<_> = (0..4_000).map(|i| format!("word{i}")).collect();
    let words = json!({ "enum": words });
    let counted = json!({ "type": "string", "minLength": 100_000, "maxLength": 1_000_000 });
    let hostile = [
        Rules::Gbnf(&chain),
        Rules::Gbnf(&doubling),
        Rules::Gbnf("root ::= ((((\"a\"{2000}){2000}){2000}){2000}){2000}"),
        Rules::Lark(&lark),
        Rules::Lark(&terminals),
        Rules::Regex("((a{1000}){1000}){1000}"),
        Rules::Regex("(a|aa)+(b|bb)+(a?){500}c{500}"),
        Rules::Regex(r"(?:[\s\S]{0,500}x){0,500}"),
        Rules::JsonSchema(&references),
        Rules::JsonSchema(&lists),
        Rules::JsonSchema(&words),
        Rules::JsonSchema(&counted),
    ];
    let bench = Bench::new();
    for rules in hostile {
        let began = Instant::now();
        let compiled = bench.grammars.compile(rules, Thinking::Never);
        assert!(!matches!(compiled, Err(GrammarError::TooLong { .. })), "it is to be tried");
        if let Ok(mut guide) = compiled {
            for _ in 0..3 {
                let Ok(next) = guide.next() else { break };
                let Some(token) = bench.choices(&next).pop() else { break };
                guide.advance(token).unwrap();
            }
        }
        let (text, took) = (format!("{rules:?}"), began.elapsed());
        assert!(took < Duration::from_secs(20), "{took:?}: {}", &text[..text.len().min(80)]);
    }
    let long = format!("root ::= \"{}\"", "a".repeat(300_000));
    assert!(bench.refusal(Rules::Gbnf(&long)).contains("262144"), "and what is longer is not");
}

/// ollama #15416, vllm #50938: fenced or unconstrained text around a thought.
#[test]
fn a_thought_comes_first_and_the_grammar_after_it() {
    let bench = Bench::new();
    let special = |spelling| bench.tokenizer.specials().token(spelling).unwrap();
    let (open, close) = (special("<|channel>"), special("<channel|>"));
    let spell = |text| bench.tokenizer.encode(text, Control::Spell);
    let compile = |thinking| bench.grammars.compile(Rules::JsonObject, thinking).unwrap();

    let mut guide = compile(Thinking::First);
    let next = guide.next().unwrap();
    assert!(next.tokens.contains(open) && !next.tokens.contains(close) && !next.end);
    assert!(!next.tokens.contains(spell("h")[0]), "nothing comes before thought and text");
    guide.follow(&[open]).unwrap();
    for thought in ["", "the", "```json\n{\"a\":1}\n```", "{", "no } JSON\n\n", "é→\u{1f642}"] {
        let mut other = guide.fork();
        for token in [&spell(thought)[..], &[close], &spell("{}")].concat() {
            other.advance(token).unwrap();
        }
        assert!(other.next().unwrap().end, "{thought}");
    }
    guide.follow(&spell("the {\"a\"\n\nbut } no\n```json\n")).unwrap();
    let next = guide.next().unwrap();
    assert!(next.tokens.contains(close) && !next.tokens.contains(open) && !next.end);
    for end in ["<turn|>", "<eos>", "<|tool_call>", "<|turn>"] {
        assert!(!next.tokens.contains(special(end)), "{end} is no thought");
    }
    guide.follow(&[close]).unwrap();
    assert!(guide.fork().advance(open).is_err(), "one thought is enough");
    assert!(guide.fork().advance(spell("`")[0]).is_err());
    guide.follow(&spell("{\"a\":1}")).unwrap();
    let next = guide.next().unwrap();
    assert!(next.end && next.tokens.is_empty());

    // Without a thought the grammar holds from the first token, and no thought comes later.
    let mut direct = compile(Thinking::First);
    direct.follow(&spell("{")).unwrap();
    assert!(!direct.next().unwrap().tokens.contains(open));

    let mut open_already = compile(Thinking::Open);
    assert!(open_already.next().unwrap().tokens.contains(spell("h")[0]));
    open_already.follow(&[&spell("h")[..], &[close], &spell("{}")].concat()).unwrap();
    assert!(open_already.next().unwrap().end);

    let mut never = compile(Thinking::Never);
    assert!(!never.next().unwrap().tokens.contains(open) && never.advance(open).is_err());
}

/// ollama #15260: with thinking off, the format was dropped in silence. Nothing but a thought, whole
/// and first, is ever outside the rules.
#[test]
fn rules_hold_with_thinking_off_and_on() {
    let bench = Bench::new();
    let schema = json!({ "type": "array", "items": { "enum": ["a", "b"] }, "maxItems": 2 });
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    let is_array = |text: &str| is_json(text) && text.starts_with('[') && !text.contains('h');
    let is_object = |text: &str| is_json(text) && text.starts_with('{');
    let is_word = |text: &str| text == "the" || text == "he";
    type Reads<'a> = &'a dyn Fn(&str) -> bool;
    let rules: [(Rules<'_>, Reads<'_>); 5] = [
        (Rules::JsonObject, &is_object),
        (Rules::JsonSchema(&schema), &is_array),
        (Rules::Regex("t?he"), &is_word),
        (Rules::Lark("start: \"the\" | \"he\""), &is_word),
        (Rules::Gbnf("root ::= \"t\"? \"he\""), &is_word),
    ];
    let mut thoughts = 0;
    for (rules, judge) in rules {
        for thinking in [Thinking::Never, Thinking::First, Thinking::Open] {
            let guide = bench.grammars.compile(rules, thinking).unwrap();
            for seed in 0..30 {
                let reply = bench.ramble(&guide, seed);
                let begun = if thinking == Thinking::Open { "<|channel>" } else { "" };
                let whole = format!("{begun}{reply}");
                let text = match whole.strip_prefix("<|channel>") {
                    Some(thought) => {
                        thoughts += 1;
                        thought.split_once("<channel|>").expect("the thought is closed").1
                    }
                    None => &whole,
                };
                assert!(judge(text), "{rules:?}, {thinking:?}: {reply:?}");
                assert!(thinking != Thinking::Never || !reply.contains("<|channel>"));
            }
        }
    }
    assert!(thoughts > 150, "there were {thoughts}");
}

/// llama.cpp #23990: a schema and the beginning of an answer could not go together.
#[test]
fn the_grammar_goes_on_from_a_prefilled_answer() {
    let bench = Bench::new();
    let schema = json!({
        "type": "object", "required": ["the"], "additionalProperties": false,
        "properties": { "the": { "enum": ["heat", "hat"] } },
    });
    let whole = "{\"the\": \"heat\"}";
    for cut in 0..=whole.len() {
        let mut guide = bench.compile(Rules::JsonSchema(&schema));
        let (prefilled, rest) = whole.split_at(cut);
        guide.follow(&bench.tokenizer.encode(prefilled, Control::Spell)).unwrap();
        let forked = bench.ramble(&guide, cut as u64);
        let value: Value = serde_json::from_str(&format!("{prefilled}{forked}")).unwrap();
        assert!(value["the"] == "heat" || value["the"] == "hat", "{value}");
        guide.follow(&bench.tokenizer.encode(rest, Control::Spell)).unwrap();
        assert!(guide.next().unwrap().end);
    }
    for wrong in ["the", "[", "{\"a\"", "{\"the\": \"hut", "{} "] {
        let mut guide = bench.compile(Rules::JsonSchema(&schema));
        let tokens = bench.tokenizer.encode(wrong, Control::Spell);
        assert!(guide.follow(&tokens).is_err(), "{wrong}");
    }
}

/// Looking changes nothing, and forks go their own ways.
#[test]
fn a_guide_depends_on_the_text_alone() {
    let bench = Bench::new();
    let mut guide = bench.compile(Rules::Gbnf(JSON_GBNF)).fork();
    for token in bench.tokenizer.encode("{\"the\": [1, \"a\", {}]}", Control::Spell) {
        let next = guide.next().unwrap();
        assert_eq!(guide.next().unwrap(), next);
        let mut other = guide.fork();
        assert_eq!(other.next().unwrap(), next);
        let elsewhere = bench.choices(&next).into_iter().find(|choice| *choice != token);
        if let Some(choice) = elsewhere {
            other.advance(choice).unwrap();
        }
        let refused = (0..bench.tokenizer.len() as u32).map(TokenId);
        let refused = refused.filter(|token| !next.tokens.contains(*token)).take(5);
        refused.for_each(|token| assert!(guide.fork().advance(token).is_err(), "{token:?}"));
        guide.advance(token).unwrap();
    }
    assert!(guide.next().unwrap().end);
}

/// vllm #39885: what the prompt has opened counts.
#[test]
fn a_prompt_that_ends_in_a_thought_leaves_it_open() {
    let tokenizer = toy();
    let after = |prompt: &str| {
        Thinking::First.after(&tokenizer.encode(prompt, Control::Honour), &tokenizer)
    };
    for prompt in ["<|channel>", "<|channel>the", "<|channel>h<channel|>b<|channel>"] {
        assert_eq!(after(prompt), Thinking::Open, "{prompt}");
    }
    for prompt in ["", "the", "<|channel>the<channel|>", "<channel|>"] {
        assert_eq!(after(prompt), Thinking::First, "{prompt}");
    }
}

#[test]
fn a_vocabulary_without_thoughts_has_none_open() {
    let mut json = crate::support::toy_json().to_string();
    json = json.replace("<|channel>", "<|chan>").replace("<channel|>", "<chan|>");
    let tokenizer = Tokenizer::from_json(&json, "<bos>", "<eos>").unwrap();
    let grammars = Grammars::new(&tokenizer);
    let compile = |thinking| grammars.compile(Rules::JsonObject, thinking).map(drop);
    assert_eq!(compile(Thinking::Open), Err(GrammarError::NoThoughts));
    assert_eq!(compile(Thinking::First), Ok(()), "it has no thoughts to come first");
}
