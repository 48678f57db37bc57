//! Making conversations sayable: templates render some message lists that clients do send into
//! prompts no model was trained on.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::conversation::{Content, Conversation, Message, Part, Role};

/// Rewrites a conversation so that every published Gemma template renders it well:
///
/// * arguments of calls become objects: JSON text is parsed, `null` becomes an empty object, and
///   text that is no JSON object becomes the one member `arguments`;
/// * members of arguments that are `null` are dropped, at any depth: templates disagree on how to
///   write them;
/// * a tool's result is one text: objects are written as JSON, text parts are joined, and a missing
///   function name is taken from the call it answers;
/// * thoughts from before the last message of a person are dropped, also those spelled out in what
///   the model said: models are trained not to see them. Within one loop of tool calls they stay;
/// * text beside tool calls becomes reasoning: the template would print it after the results and
///   end the turn before the model can go on;
/// * neighbouring messages of the model that only say text become one, joined by a newline: the
///   second would have no turn of its own.
pub fn normalise(chat: &mut Conversation) {
    name_results(&mut chat.messages);
    let asked = chat.messages.iter().rposition(|message| message.role == Role::User);
    chat.messages[..asked.unwrap_or(0)].iter_mut().for_each(forget_thoughts);
    for message in &mut chat.messages {
        for call in &mut message.tool_calls {
            call.arguments = Value::Object(arguments(call.arguments.take()));
        }
        if message.role == Role::Tool {
            write_result(message);
        }
        if !message.tool_calls.is_empty() {
            think_aloud(message);
        }
    }
    chat.messages.dedup_by(|next, message| absorb(message, next));
}

/// Calls may reuse ids, so a result is named after the latest call with its id.
fn name_results(messages: &mut [Message]) {
    let mut names: HashMap<String, String> = HashMap::new();
    for message in messages {
        if message.role == Role::Tool && message.name.is_none() {
            message.name = message.tool_call_id.as_ref().and_then(|id| names.get(id)).cloned();
        }
        for call in &message.tool_calls {
            names.extend(call.id.clone().map(|id| (id, call.name.clone())));
        }
    }
}

fn forget_thoughts(message: &mut Message) {
    if message.role != Role::Assistant {
        return;
    }
    message.reasoning = None;
    match &mut message.content {
        Some(Content::Text(text)) => *text = without_thoughts(text),
        Some(Content::Parts(parts)) => {
            for part in parts {
                if let Part::Text(text) = part {
                    *text = without_thoughts(text);
                }
            }
        }
        Some(Content::Object(_)) | None => {}
    }
}

/// `text` without what stands between the marks of a thought; all that follows an open one.
fn without_thoughts(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, thought)) = rest.split_once("<|channel>thought") {
        kept.push_str(before);
        rest = thought.split_once("<channel|>").map_or("", |(_, after)| after);
    }
    kept + rest
}

fn arguments(given: Value) -> Map<String, Value> {
    let mut arguments = match given {
        Value::Object(members) => members,
        Value::Null => Map::new(),
        Value::String(text) if text.trim().is_empty() => Map::new(),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(members)) => members,
            Ok(Value::Null) => Map::new(),
            Ok(_) | Err(_) => Map::from_iter([("arguments".to_owned(), Value::String(text))]),
        },
        other => Map::from_iter([("arguments".to_owned(), other)]),
    };
    drop_nulls(&mut arguments);
    arguments
}

fn drop_nulls(members: &mut Map<String, Value>) {
    members.retain(|_, value| !value.is_null());
    members.values_mut().for_each(drop_nulls_inside);
}

fn drop_nulls_inside(value: &mut Value) {
    match value {
        Value::Object(members) => drop_nulls(members),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls_inside),
        _ => {}
    }
}

fn write_result(message: &mut Message) {
    let text = match &message.content {
        Some(Content::Object(members)) => Some(Value::Object(members.clone()).to_string()),
        _ => plain_text(message),
    };
    message.content = text.map(Content::Text).or_else(|| message.content.take());
}

fn think_aloud(message: &mut Message) {
    let Some(said) = plain_text(message) else { return };
    let thoughts = [message.reasoning.take().unwrap_or_default(), said];
    let thoughts: Vec<String> = thoughts.into_iter().filter(|t| !t.trim().is_empty()).collect();
    message.reasoning = (!thoughts.is_empty()).then(|| thoughts.join("\n"));
    message.content = None;
}

/// Appends `next` to `message` if both are the model's and only say text.
fn absorb(message: &mut Message, next: &Message) -> bool {
    let only_says = |message: &Message| {
        let calls = !message.tool_calls.is_empty() || !message.tool_responses.is_empty();
        if calls || message.role != Role::Assistant { None } else { plain_text(message) }
    };
    let (Some(said), Some(more)) = (only_says(message), only_says(next)) else { return false };
    message.content = Some(Content::Text(format!("{said}\n{more}")));
    true
}

/// What a message says, if it is text and nothing else.
fn plain_text(message: &Message) -> Option<String> {
    match message.content.as_ref()? {
        Content::Text(text) => Some(text.clone()),
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                Part::Media { .. } => None,
            })
            .collect(),
        Content::Object(_) => None,
    }
}
