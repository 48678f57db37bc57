//! A Jinja environment that behaves like the one chat templates are written against: Hugging Face
//! Transformers' over Python's Jinja2.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, StringInput, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use crate::python::{self, Dumps};

/// What `raise_exception` was called with, as the source of the error it raises.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refusal(pub(crate) String);

/// The environment without templates. A render may take `fuel` steps, of which each also pays for
/// about 64 bytes.
pub(crate) fn environment(fuel: u64) -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(method);
    env.set_formatter(print);
    env.set_fuel(Some(fuel));
    env.add_function("raise_exception", raise_exception);
    env.add_filter("tojson", tojson);
    env.add_filter("trim", trim);
    env.add_test("sequence", is_sequence);
    env.add_test("iterable", is_iterable);
    Ok(env)
}

fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match f64::try_from(value.clone()) {
        Ok(x) if value.kind() == ValueKind::Number && !value.is_integer() => {
            out.write_str(&python::float(x)).map_err(Error::from)
        }
        _ => minijinja::escape_formatter(out, state, value),
    }
}

fn raise_exception(message: String) -> Result<Value, Error> {
    let summary = Error::new(ErrorKind::InvalidOperation, "the template raised an exception");
    Err(summary.with_source(Refusal(message)))
}

/// `json.dumps` without escaping for HTML, which is what Transformers put in place of Jinja's.
fn tojson(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent = options.get::<Option<Value>>("indent")?.as_ref().and_then(indentation);
    let (item_separator, key_separator) = separators(&options, indent.is_some())?;
    let dumps = Dumps {
        item_separator,
        key_separator,
        indent,
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let value = serde_json::to_value(value).map_err(|err| {
        Error::new(ErrorKind::BadSerialization, "the value has no JSON").with_source(err)
    })?;
    let text = dumps.text(&value);
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(Value::from(text))
}

/// Between items, and between a name and its value.
fn separators(options: &Kwargs, indented: bool) -> Result<(String, String), Error> {
    match options.get::<Option<Vec<String>>>("separators")?.as_deref() {
        None if indented => Ok((",".to_owned(), ": ".to_owned())),
        None => Ok((", ".to_owned(), ": ".to_owned())),
        Some([item, key]) => Ok((item.clone(), key.clone())),
        Some(_) => Err(Error::new(ErrorKind::InvalidOperation, "separators must be two texts")),
    }
}

fn indentation(indent: &Value) -> Option<String> {
    match indent.as_str() {
        Some(text) => Some(text.to_owned()),
        None => indent.as_usize().map(|width| " ".repeat(width.min(16))),
    }
}

/// Methods of Python's types, where `strip` and its kin drop what Python calls white space.
fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), name, args) {
        (Some(text), "strip", []) => Ok(text.trim_matches(python::is_space).into()),
        (Some(text), "lstrip", []) => Ok(text.trim_start_matches(python::is_space).into()),
        (Some(text), "rstrip", []) => Ok(text.trim_end_matches(python::is_space).into()),
        _ => unknown_method_callback(state, value, name, args),
    }
}

/// `strip` as a filter, over the text of any value.
fn trim(value: StringInput<'_>, chars: Option<&str>) -> Value {
    let text = value.as_str();
    match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).into(),
        None => text.trim_matches(python::is_space).into(),
    }
}

/// Python refuses to iterate over `None`.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Python's sequences have a length and items by index: texts and dictionaries do too.
fn is_sequence(value: &Value) -> bool {
    let kind = value.kind();
    matches!(kind, ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String)
}
