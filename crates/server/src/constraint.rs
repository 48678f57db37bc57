//! What a request's answers must conform to: a schema, a call, a thought that ends in time.

use std::sync::Arc;

use lapidary_core::{Constraint, Next, Stuck, TokenId, TokenSet};
use lapidary_text::{Calls, Control, Guide, Rules, Thinking, Tokenizer, call_grammar};
use serde_json::Value;

use crate::app::App;
use crate::error::ApiError;
use crate::prompt::Written;
use crate::sampling::unavailable;
use crate::tools::{Choice, name};
use crate::wire::chat::ChatRequest;

/// What the answers to a chat request must conform to, if to anything. `tools` are those that the
/// prompt declares.
pub(crate) fn of(
    asked: &ChatRequest,
    tools: &[Value],
    thinking: bool,
    written: &Written,
    app: &App,
) -> Result<Option<Arc<dyn Constraint>>, ApiError> {
    let channel = Channel::of(&app.model().tokenizer, &app.model().end);
    let open = channel.as_ref().is_some_and(|channel| channel.is_open_after(&written.tokens));
    let place = match (open, thinking) {
        (true, _) => Thinking::Open,
        (false, true) => Thinking::First,
        (false, false) => Thinking::Never,
    };
    let shape = Shape::of(asked.response_format.as_ref(), "response_format")?;
    let guide = Wanted::of(asked, tools, shape)?.map(|wanted| wanted.guide(place, written, app));
    let guide = guide.transpose()?;
    let left = asked.thinking_budget;
    match (guide, channel) {
        (None, _) if left.is_none() => Ok(None),
        (_, None) if left.is_some() => Err(unavailable("thinking_budget")),
        (guide, Some(channel)) if place != Thinking::Never || left.is_some() => {
            let rest = guide.map(|guide| Box::new(guide) as Box<dyn Constraint>);
            let labelled = if open { channel.label.len() } else { 0 };
            Ok(Some(Arc::new(Thoughts { channel, thinking: open, labelled, left, rest })))
        }
        (guide, _) => Ok(guide.map(|guide| Arc::new(guide) as Arc<dyn Constraint>)),
    }
}

/// What the texts of a completion must conform to, if to anything.
pub(crate) fn of_text(
    format: Option<&Value>,
    app: &App,
) -> Result<Option<Arc<dyn Constraint>>, ApiError> {
    let shape = Shape::of(format, "response_format")?;
    let Some(rules) = shape.rules() else { return Ok(None) };
    let guide = app.grammars().compile(rules, Thinking::Never);
    let guide =
        guide.map_err(|error| ApiError::unsupported("response_format", error.to_string()))?;
    Ok(Some(Arc::new(guide)))
}

/// What `response_format` asks for.
#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Text,
    Object,
    Schema(Value),
}

impl Shape {
    fn of(format: Option<&Value>, path: &str) -> Result<Self, ApiError> {
        let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(Self::Text) };
        match format["type"].as_str() {
            Some("text") => Ok(Self::Text),
            // Some clients send a schema with this word, as llama.cpp takes it.
            Some("json_object") => match format.get("schema").filter(|schema| !schema.is_null()) {
                Some(schema) => Ok(Self::Schema(schema.clone())),
                None => Ok(Self::Object),
            },
            Some("json_schema") => {
                let schema = format["json_schema"].get("schema").or_else(|| format.get("schema"));
                let path = format!("{path}.json_schema.schema");
                schema.cloned().map(Self::Schema).ok_or_else(|| ApiError::missing(&path))
            }
            _ => {
                let path = format!("{path}.type");
                let public = format!("`{path}` must be text, json_object or json_schema");
                Err(ApiError::field(&path, public))
            }
        }
    }

    fn rules(&self) -> Option<Rules<'_>> {
        match self {
            Self::Text => None,
            Self::Object => Some(Rules::JsonObject),
            Self::Schema(schema) => Some(Rules::JsonSchema(schema)),
        }
    }

    /// As a schema, if it is one.
    fn schema(self) -> Option<Value> {
        match self {
            Self::Text => None,
            Self::Object => Some(serde_json::json!({ "type": "object" })),
            Self::Schema(schema) => Some(schema),
        }
    }
}

/// What an answer must be.
enum Wanted {
    Shaped(Shape),
    /// Calls in this language, or what it allows instead.
    Called(String),
}

impl Wanted {
    fn of(asked: &ChatRequest, tools: &[Value], shape: Shape) -> Result<Option<Self>, ApiError> {
        let calls = match asked.parallel_tool_calls {
            Some(false) => Calls::One,
            _ => Calls::Some,
        };
        Ok(match Choice::of(asked.tool_choice.as_ref(), tools)? {
            Choice::Required => Some(Self::Called(call_grammar(tools, calls, None))),
            Choice::Named(wanted) => {
                let named = tools.iter().filter(|tool| name(tool) == Some(&*wanted));
                let named: Vec<_> = named.cloned().collect();
                Some(Self::Called(call_grammar(&named, Calls::One, None)))
            }
            Choice::Auto | Choice::None if shape == Shape::Text => None,
            Choice::Auto if !tools.is_empty() => {
                Some(Self::Called(call_grammar(tools, calls, shape.schema().as_ref())))
            }
            Choice::Auto | Choice::None => Some(Self::Shaped(shape)),
        })
    }

    /// The constraint, with what the prompt already holds of the answer behind it.
    fn guide(&self, place: Thinking, written: &Written, app: &App) -> Result<Guide, ApiError> {
        let (rules, field) = match self {
            Self::Shaped(shape) => (shape.rules(), "response_format"),
            Self::Called(lark) => (Some(Rules::Lark(lark)), "tools"),
        };
        let rules = rules.ok_or_else(|| ApiError::internal("plain text has no grammar"))?;
        let guide = app.grammars().compile(rules, place);
        let mut guide = guide.map_err(|error| ApiError::unsupported(field, error.to_string()))?;
        if let Some(prefill) = &written.prefill {
            let tokens = app.model().tokenizer.encode(prefill, Control::Spell);
            guide.follow(&tokens).map_err(|_| {
                let public = "the last message does not begin an answer that conforms to \
                              `response_format` or `tool_choice`; change one of them";
                ApiError::field("messages", public)
            })?;
        }
        Ok(guide)
    }
}

/// What thoughts stand between, and what they begin with.
#[derive(Clone, Debug)]
struct Channel {
    open: TokenId,
    close: TokenId,
    label: Vec<TokenId>,
    /// Every token that ends no text.
    all: TokenSet,
}

impl Channel {
    /// That of a vocabulary; some have none.
    fn of(tokenizer: &Tokenizer, end: &[TokenId]) -> Option<Self> {
        let special = |spelling| tokenizer.specials().token(spelling);
        let (open, close) = (special("<|channel>")?, special("<channel|>")?);
        let mut all = TokenSet::all(tokenizer.len());
        end.iter().for_each(|token| all.remove(*token));
        let label = tokenizer.encode("thought\n", Control::Spell);
        Some(Self { open, close, label, all })
    }

    /// Whether `prompt` leaves a thought open.
    fn is_open_after(&self, prompt: &[TokenId]) -> bool {
        let last = prompt.iter().rev().find(|token| [self.open, self.close].contains(*token));
        last == Some(&self.open)
    }
}

/// Thoughts that begin with their label and end in time. Everything else is left to another
/// constraint, if there is one.
#[derive(Debug)]
struct Thoughts {
    channel: Channel,
    /// Whether a thought is open.
    thinking: bool,
    /// How many tokens of its label it has.
    labelled: usize,
    /// Tokens of thought that may still come, labels not counted.
    left: Option<u32>,
    rest: Option<Box<dyn Constraint>>,
}

impl Constraint for Thoughts {
    fn fork(&self) -> Box<dyn Constraint> {
        let Self { thinking, labelled, left, .. } = *self;
        let rest = self.rest.as_ref().map(|rest| rest.fork());
        Box::new(Self { channel: self.channel.clone(), thinking, labelled, left, rest })
    }

    fn next(&mut self) -> Result<Next, Stuck> {
        let only = |token: TokenId| Ok(Next { tokens: [token].into_iter().collect(), end: false });
        match self.channel.label.get(self.labelled) {
            Some(&token) if self.thinking => only(token),
            _ if self.thinking && self.left == Some(0) => only(self.channel.close),
            _ => match &mut self.rest {
                Some(rest) => rest.next(),
                None => Ok(Next { tokens: self.channel.all.clone(), end: true }),
            },
        }
    }

    fn advance(&mut self, token: TokenId) -> Result<(), Stuck> {
        if let Some(rest) = &mut self.rest {
            rest.advance(token)?;
        }
        if token == self.channel.open {
            (self.thinking, self.labelled) = (true, 0);
        } else if token == self.channel.close {
            self.thinking = false;
        } else if self.thinking && self.labelled < self.channel.label.len() {
            self.labelled += 1;
        } else if self.thinking {
            self.left = self.left.map(|left| left.saturating_sub(1));
        }
        Ok(())
    }
}
