//! Grammars of tool calls: which calls a reply may make, in the language models write them in.
//!
//! Names, required members, types and choices of strings are enforced; limits of numbers, lengths
//! and patterns are not, since models are not trained to write anything else than plain values.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::grammar::WHITE_SPACE;

/// How many calls a reply makes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Calls {
    /// One.
    One,
    /// One or more.
    Some,
}

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
            "string" => "string".to_owned(),
            "integer" => "INTEGER".to_owned(),
            "number" => "NUMBER".to_owned(),
            "boolean" => self.rule("\"true\" | \"false\""),
            "null" => "\"null\"".to_owned(),
            "array" => {
                let item = schema.get("items").map(|items| self.value(items, depth + 1));
                let item = item.unwrap_or_else(|| "value".to_owned());
                let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
                let empty = if least == 0 { "\"[\" \"]\" | " } else { "" };
                self.rule(&format!("{empty}\"[\" {item} (\",\" {item})* \"]\""))
            }
            "object" => self.object(schema, depth),
            _ => "value".to_owned(),
        }
    }

    fn choices(&mut self, choices: &[Value]) -> String {
        let choice = |choice: &Value| match choice {
            Value::String(text) if text.is_empty() => "<|\"|> <|\"|>".to_owned(),
            Value::String(text) => format!("<|\"|> {} <|\"|>", literal(text)),
            other => literal(&other.to_string()),
        };
        let choices: Vec<_> = choices.iter().map(choice).collect();
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
