//! Results of functions in the form that a template's model was trained to read.

use serde_json::{Map, Value, json};

use crate::conversation::{Content, Conversation, Message, Role, ToolCall};
use crate::template::ChatTemplate;

impl ChatTemplate {
    /// Turns results that are the text of a JSON object into objects, if the template takes such:
    /// then its model was trained on members, not on JSON in quotes. Published templates of Gemma 4
    /// refuse objects and quote the text.
    pub fn suit_results(&self, chat: &mut Conversation) {
        let objects: Vec<_> = chat.messages.iter().map(object).collect();
        if objects.iter().all(Option::is_none) || !self.takes_objects() {
            return;
        }
        for (message, members) in chat.messages.iter_mut().zip(objects) {
            if let Some(members) = members {
                message.content = Some(Content::Object(members));
            }
        }
    }

    /// Whether a result may be an object, seen by trying.
    fn takes_objects(&self) -> bool {
        let mut call = Message::empty(Role::Assistant);
        let (name, arguments) = ("f".to_owned(), json!({}));
        call.tool_calls = vec![ToolCall { id: Some("1".to_owned()), name, arguments }];
        let mut result = Message::empty(Role::Tool);
        result.content = Some(Content::Object(Map::from_iter([("key".to_owned(), json!(12))])));
        (result.tool_call_id, result.name) = (Some("1".to_owned()), Some("f".to_owned()));
        let chat = Conversation::new(vec![Message::new(Role::User, "x"), call, result]);
        self.render(&chat).is_ok_and(|prompt| prompt.text().contains("key:12"))
    }
}

/// The object whose JSON a result is.
fn object(message: &Message) -> Option<Map<String, Value>> {
    match (&message.content, message.role) {
        (Some(Content::Text(text)), Role::Tool) => serde_json::from_str(text).ok(),
        _ => None,
    }
}
