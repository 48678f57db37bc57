//! Functions that a request declares, and whether they must be called.

use serde_json::{Value, json};

use crate::error::ApiError;

/// What the model may do with its functions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Choice {
    /// Call or answer.
    Auto,
    /// Answer.
    None,
    /// Call.
    Required,
    /// Call this one.
    Named(String),
}

impl Choice {
    /// What `tool_choice` says.
    pub(crate) fn of(said: Option<&Value>, tools: &[Value]) -> Result<Self, ApiError> {
        let wrong = |public: String| Err(ApiError::field("tool_choice", public));
        let choice = match said {
            None | Some(Value::Null) => return Ok(Self::Auto),
            Some(Value::String(word)) => match word.as_str() {
                "auto" => return Ok(Self::Auto),
                "none" => return Ok(Self::None),
                "required" => Self::Required,
                other => {
                    return wrong(format!(
                        "`tool_choice` is {other:?}; use auto, none, required or a function"
                    ));
                }
            },
            Some(Value::Object(choice)) => {
                let function =
                    choice.get("function").unwrap_or(&said.unwrap_or(&Value::Null)["name"]);
                let name = function.as_str().or_else(|| function.get("name")?.as_str());
                match name {
                    Some(name) => Self::Named(name.to_owned()),
                    None => return wrong("`tool_choice` must name a function".to_owned()),
                }
            }
            Some(_) => return wrong("`tool_choice` must be a word or name a function".to_owned()),
        };
        let names: Vec<_> = tools.iter().filter_map(name).collect();
        match &choice {
            Self::Named(asked) if !names.contains(&asked.as_str()) => {
                wrong(format!("`tool_choice` names {asked:?}, which `tools` does not declare"))
            }
            _ if names.is_empty() => {
                wrong("`tool_choice` asks for a call, but `tools` declares no function".to_owned())
            }
            _ => Ok(choice),
        }
    }
}

/// The name of a declared function.
pub(crate) fn name(tool: &Value) -> Option<&str> {
    tool.get("function")?.get("name")?.as_str()
}

/// Declarations in the form that templates read, or what is wrong with them.
pub(crate) fn declared(tools: &[Value]) -> Result<Vec<Value>, ApiError> {
    (0..).zip(tools).map(|(i, tool)| declaration(i, tool)).collect()
}

fn declaration(i: usize, tool: &Value) -> Result<Value, ApiError> {
    let wrong = |what: &str| {
        let path = format!("tools[{i}]");
        ApiError::field(&path, format!("{path} {what}"))
    };
    match tool.get("type").and_then(Value::as_str) {
        Some("function") => {}
        Some(_) => return Err(wrong("is no function; only functions can be called here")),
        None => return Err(wrong("has no `type`; write \"function\"")),
    }
    let function = tool.get("function").and_then(Value::as_object);
    let function = function.ok_or_else(|| wrong("has no object `function`"))?;
    let named = function.get("name").and_then(Value::as_str).is_some_and(is_name);
    if !named {
        return Err(wrong("needs a `function.name` of letters, digits, `_`, `-` and `.`"));
    }
    let parameters = function.get("parameters").filter(|given| !given.is_null());
    if parameters.is_some_and(|given| !given.is_object()) {
        return Err(wrong("has `parameters` that are no JSON schema object"));
    }
    Ok(complete(tool.clone()))
}

/// Templates count on what a declaration may leave out.
fn complete(mut tool: Value) -> Value {
    let function = &mut tool["function"];
    if function["description"].is_null() {
        function["description"] = json!("");
    }
    if function["parameters"].is_null() {
        function["parameters"] = json!({ "type": "object" });
    }
    if function["parameters"]["properties"].is_null() {
        function["parameters"]["properties"] = json!({});
    }
    tool
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    !name.is_empty() && name.len() <= 128 && name.chars().all(allowed)
}
