//! Replies that must call: whatever a model chooses among the tokens allowed, calls come out.

use lapidary_core::{Constraint, TokenId};
use lapidary_text::{
    Calls, Control, Grammars, Guide, Reply, Rules, Thinking, Tokenizer, call_grammar,
};
use serde_json::{Value, json};

use crate::support::toy;

fn tools() -> Vec<Value> {
    let function = |name, parameters: Value| json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    vec![
        function(
            "the",
            json!({ "type": "object", "required": ["he", "b"], "properties": {
            "he": { "type": "string" }, "b": { "type": "integer" }, "a": { "type": "boolean" },
            "t": { "enum": ["a", "he", ""] }, "e": { "type": ["number", "null"] } } }),
        ),
        function(
            "b.he-a",
            json!({ "type": "object", "properties": {
            "a": { "type": "array", "minItems": 1, "items": { "type": "object", "required": ["h"],
                "properties": { "h": { "const": 1 } } } } } }),
        ),
        function("h", json!({ "type": "object" })),
        json!({ "type": "function", "function": { "name": "t" } }),
    ]
}

fn guide(grammars: &Grammars, lark: &str) -> Guide {
    let guide = grammars.compile(Rules::Lark(lark), Thinking::Never);
    guide.unwrap_or_else(|error| panic!("{error}:\n{lark}"))
}

fn takes(grammars: &Grammars, tokenizer: &Tokenizer, lark: &str, text: &str) -> bool {
    let mut guide = guide(grammars, lark);
    let followed = guide.follow(&tokenizer.encode(text, Control::Honour));
    followed.is_ok() && guide.next().is_ok_and(|next| next.end)
}

#[test]
fn declared_calls_are_taken_and_others_are_not() {
    let tokenizer = toy();
    let grammars = Grammars::new(&tokenizer);
    let call = |body: &str| format!("<|tool_call>call:{body}<tool_call|>");
    let one = call_grammar(&tools(), Calls::One, None);
    let some = call_grammar(&tools(), Calls::Some, None);
    for body in [
        "the{b:1,he:<|\"|>x y<|\"|>}",
        "the{a:true,b:-20,e:null,he:<|\"|><|\"|>,t:<|\"|>he<|\"|>}",
        "the{b:1,e:2.5e3,he:<|\"|>{\"quoted\"}\n🙂<|\"|>,t:<|\"|><|\"|>}",
        "b.he-a{}",
        "b.he-a{a:[{h:1},{h:1}]}",
        "h{}",
        "h{x:[1,{y:<|\"|>z<|\"|>}],<|\"|>odd key<|\"|>:false}",
        "t{}",
    ] {
        assert!(takes(&grammars, &tokenizer, &one, &call(body)), "{body}");
        let twice = call(body).repeat(2);
        assert!(takes(&grammars, &tokenizer, &some, &twice), "{body} twice");
        assert!(!takes(&grammars, &tokenizer, &one, &twice), "{body} twice");
    }
    for body in [
        "the{he:<|\"|>x<|\"|>}",
        "the{b:1.5,he:<|\"|>x<|\"|>}",
        "the{b:1,he:2}",
        "the{b:1,he:<|\"|>x<|\"|>,t:<|\"|>b<|\"|>}",
        "the{b:1,he:<|\"|>x<|\"|>,z:1}",
        "the{}",
        "b.he-a{a:[]}",
        "b.he-a{a:[{}]}",
        "unknown{}",
        "h{",
        "h",
    ] {
        assert!(!takes(&grammars, &tokenizer, &some, &call(body)), "{body}");
    }
    assert!(!takes(&grammars, &tokenizer, &some, "the{}"));
}

/// What arguments may be under a schema, and what they may not.
#[test]
fn limits_inside_arguments_are_kept() {
    let tokenizer = toy();
    let grammars = Grammars::new(&tokenizer);
    let text = |text: &str| format!("<|\"|>{text}<|\"|>");
    let texts = |texts: &[&str]| texts.iter().map(|t| text(t)).collect::<Vec<_>>();
    let plain = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
    for (schema, taken, refused) in [
        (
            json!({ "type": "integer", "minimum": 1, "maximum": 12 }),
            plain(&["1", "9", "12"]),
            plain(&["0", "13", "-1", "1.5", "100"]),
        ),
        (
            json!({ "type": "integer", "minimum": 5 }),
            plain(&["5", "123456"]),
            plain(&["4", "-7", "99999999999999999999"]),
        ),
        (
            json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1 }),
            plain(&["0.5", "1"]),
            plain(&["0", "1.5", "-0.5"]),
        ),
        (
            json!({ "type": "integer", "multipleOf": 5, "minimum": 0 }),
            plain(&["0", "5", "25"]),
            plain(&["3", "12"]),
        ),
        (
            json!({ "type": "string", "minLength": 2, "maxLength": 4 }),
            texts(&["he", "the ", "🙂🙂", "a\nb"]),
            texts(&["", "h", "the h"]),
        ),
        (json!({ "type": "string", "maxLength": 1 }), texts(&["", "h"]), texts(&["he"])),
        (
            json!({ "type": "string", "pattern": "^[a-f]{2}-\\d+$" }),
            texts(&["ab-1", "fe-22"]),
            texts(&["ab-", "xab-1", "ab-1x", "zz-1"]),
        ),
        (json!({ "type": "string", "pattern": "a/b" }), texts(&["a/b", "xa/by"]), texts(&["ab"])),
        (
            json!({ "type": "string", "pattern": "^(no|yes)$|^x" }),
            texts(&["no", "yes", "xyz"]),
            texts(&["noo", "ayes", "ax"]),
        ),
        (
            json!({ "type": "string", "pattern": "[$^|]", "maxLength": 2 }),
            texts(&["a$", "|"]),
            texts(&["aa", "aa|"]),
        ),
        (
            json!({ "type": "array", "items": { "type": "integer" }, "minItems": 2, "maxItems": 3 }),
            plain(&["[1,2]", "[1,2,3]"]),
            plain(&["[]", "[1]", "[1,2,3,4]"]),
        ),
        (json!({ "type": "array", "maxItems": 0 }), plain(&["[]"]), plain(&["[1]"])),
        (
            json!({ "enum": [1, 2.5, null, "he", ["a", 1], { "b": "", "a": [] }] }),
            [plain(&["1", "2.5", "null"]), texts(&["he"])]
                .concat()
                .into_iter()
                .chain([format!("[{},1]", text("a")), format!("{{a:[],b:{}}}", text(""))])
                .collect(),
            plain(&["2", "he", "[]", "{}"]),
        ),
    ] {
        let parameters =
            json!({ "type": "object", "required": ["x"], "properties": { "x": schema } });
        let tool = json!({ "type": "function",
            "function": { "name": "f", "parameters": parameters } });
        let lark = call_grammar(&[tool], Calls::One, None);
        for (values, allowed) in [(taken, true), (refused, false)] {
            for value in values {
                let call = format!("<|tool_call>call:f{{x:{value}}}<tool_call|>");
                assert_eq!(
                    takes(&grammars, &tokenizer, &lark, &call),
                    allowed,
                    "{schema}: {value}"
                );
            }
        }
    }
}

#[test]
fn a_pattern_that_is_none_is_refused() {
    let grammars = Grammars::new(&toy());
    for pattern in ["(", "(?=a)b", "a\\b"] {
        let parameters = json!({ "properties": { "x": { "type": "string", "pattern": pattern } } });
        let tool = json!({ "function": { "name": "f", "parameters": parameters } });
        let lark = call_grammar(&[tool], Calls::One, None);
        assert!(grammars.compile(Rules::Lark(&lark), Thinking::Never).is_err(), "{pattern}");
    }
}

#[test]
fn an_answer_may_stand_in_for_calls() {
    let tokenizer = toy();
    let grammars = Grammars::new(&tokenizer);
    let schema = json!({ "type": "object", "required": ["a"], "properties": {
        "a": { "enum": ["b", "h"] } }, "additionalProperties": false });
    let lark = call_grammar(&tools(), Calls::Some, Some(&schema));
    for (text, allowed) in [
        ("{\"a\":\"b\"}", true),
        ("{ \"a\": \"h\" }", true),
        ("<|tool_call>call:h{}<tool_call|>", true),
        ("{\"a\":\"x\"}", false),
        ("{\"a\":\"b\"}<|tool_call>call:h{}<tool_call|>", false),
        ("the", false),
    ] {
        assert_eq!(takes(&grammars, &tokenizer, &lark, text), allowed, "{text}");
    }
}

#[test]
fn whatever_is_allowed_reads_as_declared_calls() {
    let tokenizer = toy();
    let grammars = Grammars::new(&tokenizer);
    let fresh = guide(&grammars, &call_grammar(&tools(), Calls::Some, None));
    let mut noise = 1_u64;
    let mut below = |n: usize| {
        noise =
            noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (noise >> 33) as usize % n
    };
    for _ in 0..60 {
        let mut guide = fresh.fork();
        let mut reply = Vec::new();
        loop {
            let next = guide.next().expect("the grammar goes on");
            let ids = (0..tokenizer.len() as u32).map(TokenId);
            let choices: Vec<_> = ids.filter(|id| next.tokens.contains(*id)).collect();
            if next.end && (choices.is_empty() || below(2) == 0) {
                break;
            }
            let closing = |id: &&TokenId| {
                let text = tokenizer.decode(&[**id]);
                reply.len() > 30 && ["}", "]", "<|\"|>", "<tool_call|>"].contains(&&*text)
            };
            let token =
                *choices.iter().find(closing).unwrap_or_else(|| &choices[below(choices.len())]);
            guide.advance(token).expect("what is allowed can be taken");
            reply.push(token);
            assert!(reply.len() < 4000, "no end: {}", tokenizer.decode(&reply));
        }
        let read = Reply::of(&reply, &tokenizer);
        let text = tokenizer.decode(&reply);
        assert_eq!((&*read.content, &*read.reasoning), ("", ""), "{text}");
        assert!(!read.tool_calls.is_empty(), "{text}");
        for call in read.tool_calls {
            let arguments = &call.arguments;
            match &*call.name {
                "the" => {
                    assert!(arguments["he"].is_string() && arguments["b"].is_number(), "{text}")
                }
                "b.he-a" => {
                    let all = arguments["a"].as_array().into_iter().flatten();
                    assert!(all.into_iter().all(|item| item["h"] == 1), "{text}");
                }
                name => assert!(["h", "t"].contains(&name), "{text}"),
            }
        }
    }
}
