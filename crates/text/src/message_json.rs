//! Messages from the JSON that OpenAI's clients send.

use serde_json::{Map, Value};

use crate::conversation::{Content, MediaKind, Message, Part, Role, ToolCall, ToolResponse};

/// Why a message list cannot be read. `path` says where, as in `messages[2].content[0]`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MessageError {
    /// A value has the wrong type or is absent.
    #[error("{path} must be {expected}")]
    Type {
        /// Where.
        path: String,
        /// What it must be.
        expected: &'static str,
    },
    /// Nobody has this role.
    #[error("{path} is {found:?}; roles are system, developer, user, assistant and tool")]
    Role {
        /// Where.
        path: String,
        /// The word given.
        found: String,
    },
    /// A content part is of no known type.
    #[error(
        "{path} is {found:?}; parts are text, image, image_url, audio, input_audio, video and video_url"
    )]
    Part {
        /// Where.
        path: String,
        /// The type given.
        found: String,
    },
}

impl Message {
    /// Reads a list of messages: the `messages` member of a request.
    ///
    /// # Errors
    /// The first thing that is not as it must be.
    pub fn list_from_json(messages: &Value) -> Result<Vec<Self>, MessageError> {
        let path = "messages".to_owned();
        let list = messages.as_array().ok_or(MessageError::Type { path, expected: "a list" })?;
        list.iter()
            .enumerate()
            .map(|(i, m)| Self::from_json(&format!("messages[{i}]"), m))
            .collect()
    }

    /// Reads one message; `path` names it in errors. Members without a meaning here are ignored.
    ///
    /// # Errors
    /// The first thing that is not as it must be.
    pub fn from_json(path: &str, message: &Value) -> Result<Self, MessageError> {
        let message = Object::new(path.to_owned(), message)?;
        let reasoning = match message.optional_text("reasoning")? {
            Some(text) => Some(text),
            None => message.optional_text("reasoning_content")?,
        };
        Ok(Self {
            role: role(&message)?,
            content: content(&message)?,
            reasoning,
            tool_calls: message.list("tool_calls", tool_call)?,
            tool_responses: message.list("tool_responses", tool_response)?,
            tool_call_id: message.optional_text("tool_call_id")?,
            name: message.optional_text("name")?,
        })
    }
}

fn role(message: &Object<'_>) -> Result<Role, MessageError> {
    let found = message.text("role")?;
    let path = || message.path_of("role");
    let role = Role::ALL.into_iter().find(|role| role.word() == found);
    role.ok_or_else(|| MessageError::Role { path: path(), found })
}

fn content(message: &Object<'_>) -> Result<Option<Content>, MessageError> {
    Ok(Some(match message.member("content") {
        None => return Ok(None),
        Some(Value::String(text)) => Content::Text(text.clone()),
        Some(Value::Object(members)) => Content::Object(members.clone()),
        Some(Value::Array(_)) => Content::Parts(message.list("content", part)?),
        Some(_) => return Err(message.wrong("content", "text, a list of parts, or null")),
    }))
}

fn part(part: &Object<'_>) -> Result<Part, MessageError> {
    let found = part.text("type")?;
    let kind = match found.as_str() {
        "text" | "input_text" | "output_text" => return Ok(Part::Text(part.text("text")?)),
        "image" | "image_url" | "input_image" => MediaKind::Image,
        "audio" | "audio_url" | "input_audio" => MediaKind::Audio,
        "video" | "video_url" | "input_video" => MediaKind::Video,
        _ => return Err(MessageError::Part { path: part.path_of("type"), found }),
    };
    Ok(Part::Media { kind, source: part.members.clone() })
}

fn tool_call(call: &Object<'_>) -> Result<ToolCall, MessageError> {
    let function = call.object("function")?;
    let arguments = function.member("arguments").cloned().unwrap_or_default();
    if !matches!(arguments, Value::Null | Value::String(_) | Value::Object(_)) {
        return Err(function.wrong("arguments", "an object, or its JSON as text"));
    }
    Ok(ToolCall { id: call.optional_text("id")?, name: function.text("name")?, arguments })
}

fn tool_response(response: &Object<'_>) -> Result<ToolResponse, MessageError> {
    let name = response.optional_text("name")?;
    Ok(ToolResponse { name, response: response.member("response").cloned().unwrap_or_default() })
}

/// A JSON object that knows where it stands.
struct Object<'a> {
    path: String,
    members: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn new(path: String, value: &'a Value) -> Result<Self, MessageError> {
        match value.as_object() {
            Some(members) => Ok(Self { path, members }),
            None => Err(MessageError::Type { path, expected: "an object" }),
        }
    }

    fn path_of(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    fn wrong(&self, key: &str, expected: &'static str) -> MessageError {
        MessageError::Type { path: self.path_of(key), expected }
    }

    /// A member that is there and not `null`.
    fn member(&self, key: &str) -> Option<&'a Value> {
        self.members.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Result<String, MessageError> {
        self.optional_text(key)?.ok_or_else(|| self.wrong(key, "text"))
    }

    fn optional_text(&self, key: &str) -> Result<Option<String>, MessageError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let member =
            self.member(key).map(|value| text(value).ok_or_else(|| self.wrong(key, "text")));
        member.transpose()
    }

    fn object(&self, key: &str) -> Result<Self, MessageError> {
        Self::new(self.path_of(key), self.member(key).unwrap_or(&Value::Null))
    }

    /// The items of a list that may be absent.
    fn list<T>(
        &self,
        key: &str,
        item: impl Fn(&Self) -> Result<T, MessageError>,
    ) -> Result<Vec<T>, MessageError> {
        let Some(value) = self.member(key) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| self.wrong(key, "a list"))?;
        let at = |i| format!("{}[{i}]", self.path_of(key));
        items.iter().enumerate().map(|(i, value)| item(&Self::new(at(i), value)?)).collect()
    }
}
