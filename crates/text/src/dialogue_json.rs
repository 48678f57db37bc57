//! Conversations as files: `{"messages": […], "tools": […]}`, as OpenAI's clients send them.

use serde_json::{Map, Value, json};

use crate::conversation::{Content, Message, Part, Role, ToolCall, ToolResponse};
use crate::dialogue::Dialogue;
use crate::message_json::MessageError;

/// Why a value is no conversation.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DialogueError {
    /// It has the wrong shape.
    #[error("{path} must be {expected}")]
    Shape {
        /// Where.
        path: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A message is not as it must be.
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl Dialogue {
    /// Everything but whether the model thinks first, which is no part of what was said.
    pub fn to_json(&self) -> Value {
        let system = self.system.iter().map(|text| Message::new(Role::System, text.clone()));
        let messages = system.chain(self.messages().cloned());
        json!({ "messages": messages.map(|m| message(&m)).collect::<Vec<_>>(), "tools": self.tools })
    }

    /// Reads what [`to_json`](Self::to_json) writes, or a bare list of messages.
    ///
    /// # Errors
    /// The first thing that is not as it must be.
    pub fn from_json(value: &Value) -> Result<Self, DialogueError> {
        let messages = match value {
            Value::Array(_) => Some(value),
            _ => value.get("messages"),
        };
        let shape = |path, expected| DialogueError::Shape { path, expected };
        let expected = "an object with `messages`, or a list of messages";
        let messages = messages.ok_or_else(|| shape("the conversation", expected))?;
        let mut messages = Message::list_from_json(messages)?;
        let tools = match value.get("tools") {
            None | Some(Value::Null) => Vec::new(),
            Some(tools) => tools.as_array().ok_or_else(|| shape("tools", "a list"))?.clone(),
        };
        let system = leading_system(&mut messages);
        let mut dialogue = Self::new(system, tools);
        messages.into_iter().for_each(|message| dialogue.push(message));
        Ok(dialogue)
    }
}

/// Takes the system text away from the beginning of the messages.
fn leading_system(messages: &mut Vec<Message>) -> Option<String> {
    let first = messages.first()?;
    let text = match (first.role, &first.content) {
        (Role::System | Role::Developer, Some(Content::Text(text))) => text.clone(),
        _ => return None,
    };
    messages.remove(0);
    Some(text)
}

fn message(message: &Message) -> Value {
    let text = |text: &String| json!(text);
    let list = |items: Vec<Value>| (!items.is_empty()).then_some(Value::Array(items));
    let pairs = [
        ("role", Some(json!(message.role.word()))),
        ("content", message.content.as_ref().map(content)),
        ("reasoning", message.reasoning.as_ref().map(text)),
        ("tool_calls", list(message.tool_calls.iter().map(tool_call).collect())),
        ("tool_responses", list(message.tool_responses.iter().map(tool_response).collect())),
        ("tool_call_id", message.tool_call_id.as_ref().map(text)),
        ("name", message.name.as_ref().map(text)),
    ];
    let present = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect())
}

fn content(content: &Content) -> Value {
    let part = |part: &Part| match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Media { source, .. } => Value::Object(source.clone()),
    };
    match content {
        Content::Text(text) => json!(text),
        Content::Parts(parts) => parts.iter().map(part).collect(),
        Content::Object(members) => Value::Object(members.clone()),
    }
}

fn tool_call(call: &ToolCall) -> Value {
    let function = json!({ "name": call.name, "arguments": call.arguments });
    let mut value = Map::from_iter([("type".to_owned(), json!("function"))]);
    value.extend(call.id.iter().map(|id| ("id".to_owned(), json!(id))));
    value.insert("function".to_owned(), function);
    Value::Object(value)
}

fn tool_response(response: &ToolResponse) -> Value {
    let name = response.name.iter().map(|name| ("name".to_owned(), json!(name)));
    let mut value: Map<_, _> = name.collect();
    value.insert("response".to_owned(), response.response.clone());
    Value::Object(value)
}
