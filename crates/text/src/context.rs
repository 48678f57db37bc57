//! The variables a chat template is given.

use serde_json::{Map, Value, json};

use crate::conversation::{Content, Conversation, Message, Part, Role, ToolCall, ToolResponse};
use crate::shield::Shield;
use crate::specials::Specials;

/// The names and shapes of the reference implementation. Whatever a client, tool or model wrote
/// is marked by `shield`.
pub(crate) fn context(chat: &Conversation, specials: &Specials, shield: &Shield) -> Value {
    let mut variables = shield.members(&chat.extra);
    let messages: Value = chat.messages.iter().map(|m| message(m, shield)).collect();
    let tools: Value = chat.tools.iter().map(|tool| shield.json(tool)).collect();
    variables.extend(members([
        ("messages", messages),
        ("tools", if chat.tools.is_empty() { Value::Null } else { tools }),
        ("add_generation_prompt", json!(chat.add_generation_prompt)),
        ("enable_thinking", json!(chat.enable_thinking)),
        ("bos_token", json!(specials.bos_text())),
        ("eos_token", json!(specials.eos_text())),
    ]));
    Value::Object(variables)
}

fn members<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Absent members stay absent, for templates that ask.
fn message(message: &Message, shield: &Shield) -> Value {
    let text = |text: &String| Value::String(shield.text(text));
    let list = |items: Vec<Value>| (!items.is_empty()).then_some(Value::Array(items));
    let calls = message.tool_calls.iter().map(|call| tool_call(call, shield)).collect();
    let responses = message.tool_responses.iter().map(|r| tool_response(r, shield)).collect();
    let pairs = [
        ("role", Some(json!(message.role.word()))),
        ("content", message.content.as_ref().map(|c| content(message.role, c, shield))),
        ("reasoning", message.reasoning.as_ref().map(text)),
        ("reasoning_content", message.reasoning.as_ref().map(text)),
        ("tool_calls", list(calls)),
        ("tool_responses", list(responses)),
        ("tool_call_id", message.tool_call_id.as_ref().map(text)),
        ("name", message.name.as_ref().map(text)),
    ];
    let present = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect())
}

fn content(role: Role, content: &Content, shield: &Shield) -> Value {
    let text = |text: &String| match role {
        Role::Assistant => shield.own_text(text),
        _ => shield.text(text),
    };
    let part = |part: &Part| match part {
        Part::Text(words) => json!({"type": "text", "text": text(words)}),
        Part::Media { kind, .. } => json!({"type": kind.word()}),
    };
    match content {
        Content::Text(words) => Value::String(text(words)),
        Content::Parts(parts) => parts.iter().map(part).collect(),
        Content::Object(members) => Value::Object(shield.members(members)),
    }
}

fn tool_call(call: &ToolCall, shield: &Shield) -> Value {
    let (name, arguments) = (shield.text(&call.name), shield.json(&call.arguments));
    let mut value = members([("type", json!("function"))]);
    value.extend(call.id.iter().map(|id| ("id".to_owned(), json!(shield.text(id)))));
    value.extend(members([("function", json!({"name": name, "arguments": arguments}))]));
    Value::Object(value)
}

fn tool_response(response: &ToolResponse, shield: &Shield) -> Value {
    let name = response.name.iter().map(|name| ("name".to_owned(), json!(shield.text(name))));
    let mut value: Map<_, _> = name.collect();
    value.extend(members([("response", shield.json(&response.response))]));
    Value::Object(value)
}
