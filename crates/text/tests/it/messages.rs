//! Messages from clients: what is read, what is refused, what is put right.

use lapidary_text::{
    Content, Conversation, MediaKind, Message, MessageError, Part, Role, normalise,
};
use serde_json::{Value as Json, json};

fn read(messages: Json) -> Vec<Message> {
    Message::list_from_json(&messages).expect("the messages are sound")
}

fn normalised(messages: Json) -> Vec<Message> {
    let mut chat = Conversation::new(read(messages));
    normalise(&mut chat);
    chat.messages
}

#[test]
fn a_request_is_read_whole() {
    let messages = read(json!([
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": "data:..."}},
            {"type": "input_audio", "input_audio": {"data": "...", "format": "wav"}}]},
        {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": {"ok": true}, "unknown": 3},
    ]));
    assert_eq!(messages[0], Message::new(Role::Developer, "be kind"));
    let chat = Conversation::new(messages);
    let media: Vec<_> = chat.media().map(|(kind, source)| (kind, source["type"].clone())).collect();
    assert_eq!(
        media,
        [(MediaKind::Image, "image_url".into()), (MediaKind::Audio, "input_audio".into())]
    );
    let call = &chat.messages[2];
    assert_eq!((&call.content, call.reasoning.as_deref()), (&None, Some("hm")));
    assert_eq!(call.tool_calls[0].arguments, json!("{\"a\":1}"));
    assert_eq!(chat.messages[3].tool_call_id.as_deref(), Some("1"));
    assert!(matches!(&chat.messages[3].content, Some(Content::Object(_))));
    assert!(
        matches!(&chat.messages[1].content, Some(Content::Parts(p)) if p[0] == Part::Text("what is this?".to_owned()))
    );
}

#[test]
fn errors_say_where() {
    let cases = [
        (json!("hi"), "messages must be a list"),
        (json!(["hi"]), "messages[0] must be an object"),
        (json!([{"content": "hi"}]), "messages[0].role must be text"),
        (json!([{"role": "<turn|>"}]), "messages[0].role is \"<turn|>\"; roles are"),
        (json!([{"role": "user", "content": 3}]), "messages[0].content must be text"),
        (
            json!([{"role": "user", "content": [{"type": "smell"}]}]),
            "messages[0].content[0].type is \"smell\"",
        ),
        (
            json!([{"role": "user", "content": [{"type": "text"}]}]),
            "messages[0].content[0].text must be text",
        ),
        (json!([{"role": "assistant", "tool_calls": {}}]), "messages[0].tool_calls must be a list"),
        (
            json!([{"role": "assistant", "tool_calls": [{}]}]),
            "messages[0].tool_calls[0].function must be an object",
        ),
        (
            json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}]),
            "messages[0].tool_calls[0].function.arguments must be an object",
        ),
    ];
    for (messages, expected) in cases {
        let error: MessageError = Message::list_from_json(&messages).expect_err("it is unsound");
        let message = error.to_string();
        assert!(message.starts_with(expected), "{message}\nis not {expected}");
    }
}

/// 14: null arguments.
#[test]
fn arguments_become_objects_without_nulls() {
    let arguments = |given: Json| {
        let function = json!({"name": "f", "arguments": given});
        let message = json!({"role": "assistant", "tool_calls": [{"function": function}]});
        normalised(json!([message]))[0].tool_calls[0].arguments.clone()
    };
    assert_eq!(arguments(json!(null)), json!({}));
    assert_eq!(arguments(json!("")), json!({}));
    assert_eq!(arguments(json!("null")), json!({}));
    assert_eq!(arguments(json!("{\"b\": 1, \"a\": null}")), json!({"b": 1}));
    assert_eq!(arguments(json!({"a": [{"b": null, "c": null}, null]})), json!({"a": [{}, null]}));
    assert_eq!(arguments(json!("{\"cut off")), json!({"arguments": "{\"cut off"}));
    assert_eq!(arguments(json!("[1]")), json!({"arguments": "[1]"}));
}

#[test]
fn results_are_named_text() {
    let messages = normalised(json!([
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "1", "content": {"b": 1, "a": [2]}},
        {"role": "tool", "tool_call_id": "2", "content": [
            {"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "g"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
    ]));
    assert_eq!(messages[1].name.as_deref(), Some("f"));
    assert_eq!(messages[1].content, Some(Content::Text("{\"b\":1,\"a\":[2]}".to_owned())));
    assert_eq!(messages[2].name, None);
    assert_eq!(messages[2].content, Some(Content::Text("xy".to_owned())));
    assert_eq!(messages[4].name.as_deref(), Some("g"));
}

#[test]
fn text_beside_calls_becomes_reasoning() {
    let calls = json!([{"id": "1", "function": {"name": "f"}}]);
    let messages = normalised(json!([
        {"role": "assistant", "content": "let me see", "reasoning": "hm", "tool_calls": calls}]));
    assert_eq!(messages[0].content, None);
    assert_eq!(messages[0].reasoning.as_deref(), Some("hm\nlet me see"));
}

/// 14: adjacent assistant turns.
#[test]
fn neighbouring_answers_become_one() {
    let messages = normalised(json!([
        {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"}, {"role": "assistant", "content": "d"},
        {"role": "assistant", "content": "e"}]));
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[2], Message::new(Role::Assistant, "c\nd\ne"));
}

/// 12: the word "thought" shown, empty channels in multi-turn.
#[test]
fn old_thoughts_are_dropped_and_those_of_the_tool_loop_kept() {
    let calls = json!([{"id": "1", "function": {"name": "f"}}]);
    let messages = normalised(json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning": "old"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<|channel>thought\nold\n<channel|>b"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<|channel>thought\n<channel|>b<|channel>thought\ncut"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "text", "text": "<|channel>thought<channel|>b"}]},
        {"role": "user", "content": "<|channel>thought\nmine<channel|>"},
        {"role": "assistant", "reasoning_content": "fresh", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
    ]));
    for old in &messages[..8] {
        assert_eq!(old.reasoning, None);
        let said = if old.role == Role::User { "a" } else { "b" };
        let parts = Content::Parts(vec![Part::Text(said.to_owned())]);
        let text = Content::Text(said.to_owned());
        assert!([Some(text), Some(parts)].contains(&old.content), "{old:?}");
    }
    let theirs = "<|channel>thought\nmine<channel|>".to_owned();
    assert_eq!(messages[8].content, Some(Content::Text(theirs)), "a person's words stay");
    assert_eq!(messages[9].reasoning.as_deref(), Some("fresh"));
}
