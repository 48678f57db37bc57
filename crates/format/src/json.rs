//! JSON text as a metadata tree.

use lapidary_core::Value;
use serde_json::Value as Json;

use crate::Fault;

/// Parses JSON text. Arrays become [`Value::List`]; integers that do not fit an `i64` become the
/// nearest [`Value::Float`].
///
/// # Errors
/// [`Fault::Json`] for text that is no JSON or nests deeper than 128 levels, and
/// [`Fault::MemberTwice`] for an object with two members of one name.
pub fn json(text: &str) -> Result<Value, Fault> {
    let tree: Json = serde_json::from_str(text).map_err(|e| Fault::Json(e.to_string()))?;
    // The parser keeps the last of two members with one name. One colon per member, outside of
    // strings, tells how many were written.
    if members(&tree) != colons(text) {
        return Err(Fault::MemberTwice);
    }
    Ok(value(tree))
}

fn members(tree: &Json) -> usize {
    match tree {
        Json::Object(map) => map.len() + map.values().map(members).sum::<usize>(),
        Json::Array(items) => items.iter().map(members).sum(),
        _ => 0,
    }
}

/// Colons outside of strings, in text that is known to be valid.
fn colons(text: &str) -> usize {
    let (mut colons, mut quoted, mut escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b':' if !quoted => colons += 1,
            _ => {}
        }
    }
    colons
}

fn value(tree: Json) -> Value {
    match tree {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(truth),
        Json::Number(number) => match number.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Float(number.as_f64().expect("a parsed number is i64, u64 or f64")),
        },
        Json::String(text) => Value::Str(text),
        Json::Array(items) => Value::List(items.into_iter().map(value).collect()),
        Json::Object(map) => Value::Map(map.into_iter().map(|(k, v)| (k, value(v))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value() {
        let tree = json(r#"{"a":[1,-2.5,"x:\"{}:",null],"b":{"c":true},"d":1e30}"#).unwrap();
        let list =
            vec![Value::Int(1), Value::Float(-2.5), Value::Str("x:\"{}:".into()), Value::Null];
        let Value::Map(map) = &tree else { panic!("{tree:?}") };
        assert_eq!(map["a"], Value::List(list));
        assert_eq!(map["b"].get("c"), Some(&Value::Bool(true)));
        assert_eq!(map["d"], Value::Float(1e30));
    }

    #[test]
    fn integers_beyond_i64_become_floats() {
        assert_eq!(json("18446744073709551615").unwrap(), Value::Float(u64::MAX as f64));
        assert_eq!(json("-9223372036854775808").unwrap(), Value::Int(i64::MIN));
    }

    #[test]
    fn a_member_twice_is_refused_at_any_depth() {
        assert_eq!(json(r#"{"a":1,"a":1}"#), Err(Fault::MemberTwice));
        assert_eq!(json(r#"[{"b":{"a\"":1,"a\"":2}}]"#), Err(Fault::MemberTwice));
        assert!(json(r#"{"a":{"a":1},"b":"a:\\"}"#).is_ok());
    }

    #[test]
    fn deep_nesting_is_an_error_not_a_crash() {
        assert!(matches!(json(&"[".repeat(100_000)), Err(Fault::Json(_))));
    }
}
