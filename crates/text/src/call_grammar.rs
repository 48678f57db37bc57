//! Grammars of tool calls: which calls a reply may make, in the language models write them in.
//!
//! Names, required members, types, choices, limits of numbers, and lengths and patterns of texts and
//! lists are enforced. A pattern that is no regular expression makes a grammar that does not compile.

use std::fmt::Write as _;

use llguidance::regex_to_lark;
use serde_json::{Map, Value, json};

use crate::grammar::WHITE_SPACE;

/// How many calls a reply makes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Calls {
    /// One.
    One,
    /// One or more.
    Some,
}

/// The largest integer below which a double holds all of them.
const MOST_EXACT: i64 = 1 << 53;
/// Deepest nesting of arguments that is written out; below it any value will do.
const DEEPEST: usize = 16;

/// What every grammar of calls shares: values of any type. Numbers fit into a double.
const VALUES: &str = r#"
value: string | NUMBER | "true" | "false" | "null" | list | object
string: <|"|> TEXT? <|"|>
list: "[" "]" | "[" value ("," value)* "]"
object: "{" "}" | "{" pair ("," pair)* "}"
pair: KEY ":" value | <|"|> TEXT <|"|> ":" value
TEXT: /(.|\n)+/
KEY: /[A-Za-z_@$][A-Za-z0-9_.@$\-]*/
NUMBER: /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+\-]?[0-9]{1,2})?/
INTEGER: /-?(0|[1-9][0-9]{0,17})/
"#;

/// A Lark grammar of replies that call the declared functions; with `or`, a reply may instead be
/// JSON that conforms to that schema. Declarations are as in OpenAI's `tools`; those without a name
/// are left out.
pub fn call_grammar(tools: &[Value], calls: Calls, or: Option<&Value>) -> String {
    let mut writer = Writer::default();
    let functions = tools.iter().filter_map(|tool| {
        let function = tool.get("function")?;
        Some((function.get("name")?.as_str()?, function.get("parameters")))
    });
    let functions: Vec<_> = functions
        .map(|(name, parameters)| {
            let arguments = match parameters {
                Some(schema) if schema.is_object() => writer.object(schema, 0),
                _ => "object".to_owned(),
            };
            format!("{} {arguments}", literal(name))
        })
        .collect();
    let many = if calls == Calls::Some { "+" } else { "" };
    let mut lark = format!("start: call{many}");
    if let Some(schema) = or {
        let mut schema = schema.clone();
        if let Some(members) = schema.as_object_mut() {
            let spacing = json!({ "whitespace_pattern": WHITE_SPACE });
            members.insert("x-guidance".to_owned(), spacing);
        }
        // Writing to a string cannot fail.
        let _ = write!(lark, " | answer\nanswer: %json {schema}");
    }
    let _ = write!(
        lark,
        "\ncall: <|tool_call> \"call:\" function <tool_call|>\nfunction: {}\n{}{VALUES}",
        functions.join(" | "),
        writer.rules,
    );
    lark
}

/// Text as a Lark literal.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// A value as calls spell it, as a Lark expression.
fn spelled(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "<|\"|> <|\"|>".to_owned(),
        Value::String(text) => format!("<|\"|> {} <|\"|>", literal(text)),
        Value::Array(items) => enclosed("[", items.iter().map(spelled), "]"),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.to_lowercase());
            let member = |(name, value): (&String, &Value)| {
                format!("{} {}", literal(&format!("{name}:")), spelled(value))
            };
            enclosed("{", members.into_iter().map(member), "}")
        }
        plain => literal(&plain.to_string()),
    }
}

fn enclosed(open: &str, parts: impl Iterator<Item = String>, close: &str) -> String {
    let parts = parts.collect::<Vec<_>>().join(" \",\" ");
    format!("{} {parts} {}", literal(open), literal(close))
}

/// A count that a schema gives.
fn count(schema: &Value, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_u64)
}

/// How often something is repeated, as expressions write it.
fn times(least: u64, most: Option<u64>) -> String {
    format!("{{{least},{}}}", most.map_or(String::new(), |most| most.to_string()))
}

/// A pattern of JSON Schema, which is found anywhere in a text, as an expression for whole texts.
fn anchored(pattern: &str) -> String {
    let alternatives = alternatives(pattern).into_iter().map(|part| {
        let (before, part) = match part.strip_prefix('^') {
            Some(part) => ("", part),
            None => ("(?s:.*)", part),
        };
        let ends = part.ends_with('$') && !part[..part.len() - 1].ends_with('\\');
        let (part, after) = if ends { (&part[..part.len() - 1], "") } else { (part, "(?s:.*)") };
        format!("{before}({}){after}", regex_to_lark(part, "dw"))
    });
    alternatives.collect::<Vec<_>>().join("|")
}

/// The parts of a pattern between the bars that are in no group and no class.
fn alternatives(pattern: &str) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut depth, mut class, mut escaped) = (0_u32, false, false);
    for (at, c) in pattern.char_indices() {
        match c {
            _ if escaped => {
                escaped = false;
                continue;
            }
            '\\' => escaped = true,
            ']' => class = false,
            '[' => class = true,
            _ if class => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => {
                parts.push(&pattern[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&pattern[begin..]);
    parts
}

/// Writes rules for schemas, each under a name of its own.
#[derive(Default)]
struct Writer {
    rules: String,
    count: usize,
}

impl Writer {
    fn rule(&mut self, body: &str) -> String {
        let name = format!("r{}", self.count);
        self.count += 1;
        let _ = writeln!(self.rules, "{name}: {body}");
        name
    }

    /// An expression for values that conform to `schema`, as far as that is enforced.
    fn value(&mut self, schema: &Value, depth: usize) -> String {
        if depth > DEEPEST {
            return "value".to_owned();
        }
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            return self.choices(choices);
        }
        if let Some(only) = schema.get("const") {
            return self.choices(std::slice::from_ref(only));
        }
        let several = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        if let Some(options) = several.and_then(Value::as_array).filter(|o| !o.is_empty()) {
            let options: Vec<_> =
                options.iter().map(|option| self.value(option, depth + 1)).collect();
            return self.rule(&options.join(" | "));
        }
        match schema.get("type") {
            Some(Value::String(kind)) => self.typed(kind, schema, depth),
            Some(Value::Array(kinds)) if !kinds.is_empty() => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                let options: Vec<_> = kinds.map(|kind| self.typed(kind, schema, depth)).collect();
                self.rule(&options.join(" | "))
            }
            _ if schema.get("properties").is_some() => self.object(schema, depth),
            _ => "value".to_owned(),
        }
    }

    fn typed(&mut self, kind: &str, schema: &Value, depth: usize) -> String {
        match kind {
            "string" => self.string(schema),
            "integer" | "number" => self.number(kind, schema),
            "boolean" => self.rule("\"true\" | \"false\""),
            "null" => "\"null\"".to_owned(),
            "array" => {
                let item = schema.get("items").map(|items| self.value(items, depth + 1));
                self.list(&item.unwrap_or_else(|| "value".to_owned()), schema)
            }
            "object" => self.object(schema, depth),
            _ => "value".to_owned(),
        }
    }

    /// A text of a length and under a pattern, both of the schema's.
    fn string(&mut self, schema: &Value) -> String {
        let (least, most) = (count(schema, "minLength"), count(schema, "maxLength"));
        let pattern = schema.get("pattern").and_then(Value::as_str);
        let length = match (least, most) {
            (None | Some(0), None) => None,
            (least, most) => Some(format!("/(?s:.{})/", times(least.unwrap_or(0), most))),
        };
        let pattern = pattern.map(|pattern| format!("/{}/", anchored(pattern)));
        let parts: Vec<_> = length.into_iter().chain(pattern).collect();
        if parts.is_empty() {
            return "string".to_owned();
        }
        let text = format!("T{}", self.count);
        let _ = writeln!(self.rules, "{text}: {}", parts.join(" & "));
        self.rule(&format!("<|\"|> {text} <|\"|>"))
    }

    /// A number within limits, and one that fits into a double where there are none.
    fn number(&mut self, kind: &str, schema: &Value) -> String {
        const LIMITS: [&str; 5] =
            ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
        let given = |name: &&str| Some(((*name).to_owned(), schema.get(*name)?.clone()));
        let mut limits: Map<_, _> = LIMITS.iter().filter_map(given).collect();
        if limits.is_empty() {
            return if kind == "integer" { "INTEGER".to_owned() } else { "NUMBER".to_owned() };
        }
        for (inclusive, exclusive, bound) in [
            ("minimum", "exclusiveMinimum", -MOST_EXACT),
            ("maximum", "exclusiveMaximum", MOST_EXACT),
        ] {
            if !limits.contains_key(inclusive) && !limits.contains_key(exclusive) {
                limits.insert(inclusive.to_owned(), bound.into());
            }
        }
        limits.insert("type".to_owned(), kind.into());
        self.rule(&format!("%json {}", Value::Object(limits)))
    }

    /// A list of so many items.
    fn list(&mut self, item: &str, schema: &Value) -> String {
        let (least, most) = (count(schema, "minItems").unwrap_or(0), count(schema, "maxItems"));
        let empty = "\"[\" \"]\"";
        if most == Some(0) {
            return self.rule(empty);
        }
        let more = times(least.saturating_sub(1), most.map(|most| most - 1));
        let some = format!("\"[\" {item} (\",\" {item}){more} \"]\"");
        self.rule(&if least == 0 { format!("{empty} | {some}") } else { some })
    }

    fn choices(&mut self, choices: &[Value]) -> String {
        let choices: Vec<_> = choices.iter().map(spelled).collect();
        if choices.is_empty() { "value".to_owned() } else { self.rule(&choices.join(" | ")) }
    }

    /// An object whose declared members come in order of name, as models are trained to write
    /// them; without declared members, any object.
    fn object(&mut self, schema: &Value, depth: usize) -> String {
        let declared = schema.get("properties").and_then(Value::as_object);
        let Some(declared) = declared.filter(|declared| !declared.is_empty()) else {
            return "object".to_owned();
        };
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|names| names.iter().any(|n| n.as_str() == Some(name)))
        };
        let mut members: Vec<_> = declared.iter().collect();
        members.sort_by_key(|(name, _)| name.to_lowercase());
        // From the last member to the first: what may follow, after another member or as the first.
        let (mut rest, mut first) = ("\"}\"".to_owned(), "\"}\"".to_owned());
        for (name, schema) in members.into_iter().rev() {
            let member =
                format!("{} {}", literal(&format!("{name}:")), self.value(schema, depth + 1));
            let (mut after, mut begin) =
                (format!("\",\" {member} {rest}"), format!("{member} {rest}"));
            if !is_required(name) {
                after = format!("{after} | {rest}");
                begin = format!("{begin} | {first}");
            }
            (rest, first) = (self.rule(&after), self.rule(&begin));
        }
        self.rule(&format!("\"{{\" {first}"))
    }
}
