//! What was said, by whom: the input of a chat template.

use serde_json::{Map, Value};

/// A conversation to be continued, with what the template may be told besides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// In order of time.
    pub messages: Vec<Message>,
    /// Declarations of functions the model may call, as in OpenAI's `tools`.
    pub tools: Vec<Value>,
    /// Whether the prompt ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Whether the model is asked to think first.
    pub enable_thinking: bool,
    /// More variables for the template; those it is always given keep their values.
    pub extra: Map<String, Value>,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Who wrote it.
    pub role: Role,
    /// What it says; a message that only calls tools says nothing.
    pub content: Option<Content>,
    /// What the model thought before it answered.
    pub reasoning: Option<String>,
    /// Calls the model made.
    pub tool_calls: Vec<ToolCall>,
    /// Results kept with the message that called, as Google's own format does.
    pub tool_responses: Vec<ToolResponse>,
    /// Which call a tool's message answers.
    pub tool_call_id: Option<String>,
    /// The author's name; for a tool's message, the function's.
    pub name: Option<String>,
}

/// Who wrote a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Role {
    /// The operator.
    System,
    /// The operator, in OpenAI's newer word.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A function's result.
    Tool,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Text alone.
    Text(String),
    /// Text and media in order.
    Parts(Vec<Part>),
    /// A tool's result as named values.
    Object(Map<String, Value>),
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Words.
    Text(String),
    /// Something to look at or listen to. The template writes a placeholder for it.
    Media {
        /// What it is.
        kind: MediaKind,
        /// The part as the client sent it, for whoever fetches the data.
        source: Map<String, Value>,
    },
}

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A sound.
    Audio,
    /// A film.
    Video,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Names the call in the message that answers it.
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// As received: an object, JSON text, or `null`. [`normalise`](crate::normalise()) makes it an
    /// object.
    pub arguments: Value,
}

/// A function's result.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResponse {
    /// The function.
    pub name: Option<String>,
    /// What it returned.
    pub response: Value,
}

impl Conversation {
    /// `messages` to be answered, without tools or thinking.
    pub fn new(messages: Vec<Message>) -> Self {
        Self { messages, add_generation_prompt: true, ..Self::default() }
    }

    /// The media of all messages, in the order of their placeholders.
    pub fn media(&self) -> impl Iterator<Item = (MediaKind, &Map<String, Value>)> {
        let parts = self.messages.iter().flat_map(|message| match &message.content {
            Some(Content::Parts(parts)) => parts.as_slice(),
            _ => &[],
        });
        parts.filter_map(|part| match part {
            Part::Media { kind, source } => Some((*kind, source)),
            Part::Text(_) => None,
        })
    }
}

impl Message {
    /// A message of text.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { content: Some(Content::Text(text.into())), ..Self::empty(role) }
    }

    /// A message that says nothing yet.
    pub fn empty(role: Role) -> Self {
        Self {
            role,
            content: None,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_responses: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] =
        [Self::System, Self::Developer, Self::User, Self::Assistant, Self::Tool];

    /// The word for it in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl MediaKind {
    /// The word for it in templates.
    pub fn word(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }
}
