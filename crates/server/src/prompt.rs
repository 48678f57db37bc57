//! From a conversation to what the model reads.

use axum::http::StatusCode;
use lapidary_core::TokenId;
use lapidary_engine::Soft;
use lapidary_text::{
    ChatTemplate, Content, Conversation, Message, Part, Role, TemplateError, normalise,
};

use crate::app::App;
use crate::error::ApiError;
use crate::images;

/// A conversation written down.
#[derive(Debug)]
pub(crate) struct Written {
    /// As text, special tokens spelled.
    pub(crate) text: String,
    /// As the model reads it.
    pub(crate) tokens: Vec<TokenId>,
    /// The pictures in it.
    pub(crate) soft: Vec<Soft>,
    /// The beginning of the answer that the client wrote in the model's name.
    pub(crate) prefill: Option<String>,
}

/// The tokens that end a turn: Gemma 4's and Gemma 3's.
const TURN_ENDS: [&str; 2] = ["<turn|>", "<end_of_turn>"];

/// Writes a conversation down for the model to continue. If the last message is the model's own and
/// only says text, the model goes on with it.
pub(crate) fn write(mut chat: Conversation, app: &App) -> Result<Written, ApiError> {
    if chat.messages.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty; send at least one message"));
    }
    let model = app.model();
    images::refuse_others(&chat, model.images.as_ref())?;
    let template = template(app)?;
    normalise(&mut chat);
    template.suit_results(&mut chat);
    let said = chat.messages.last().and_then(says_only_text);
    chat.add_generation_prompt = said.is_none();
    let prompt = template.render(&chat).map_err(refused)?;
    let tokenizer = &model.tokenizer;
    let mut written = Written {
        text: prompt.text(),
        tokens: prompt.encode(tokenizer),
        soft: Vec::new(),
        prefill: None,
    };
    if let Some(said) = said {
        let known = TURN_ENDS.iter().find_map(|end| Some((end, tokenizer.specials().token(end)?)));
        let (end, token) = known.ok_or_else(cannot_continue)?;
        let last = written.tokens.iter().rposition(|found| *found == token);
        let last = last.ok_or_else(cannot_continue)?;
        written.tokens.truncate(last);
        let cut = written.text.rfind(end).ok_or_else(cannot_continue)?;
        written.text.truncate(cut);
        if !written.text.ends_with(said.trim()) {
            return Err(cannot_continue());
        }
        written.prefill = Some(said.trim().to_owned());
    }
    let sight = (model.images.as_ref(), app.engine(), tokenizer);
    (written.tokens, written.soft) = images::place(&chat, written.tokens, model.context, sight)?;
    Ok(written)
}

fn template(app: &App) -> Result<&ChatTemplate, ApiError> {
    app.model().template.as_ref().ok_or_else(|| {
        let public = "this model has no chat template; use /v1/completions";
        ApiError::new(StatusCode::BAD_REQUEST, "no_chat_template", public)
    })
}

/// What the model's last message says, if it says something and does nothing else.
fn says_only_text(message: &Message) -> Option<String> {
    if message.role != Role::Assistant || !message.tool_calls.is_empty() {
        return None;
    }
    let text = match message.content.as_ref()? {
        Content::Text(text) => text.clone(),
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.as_str(),
                Part::Media { .. } => "",
            })
            .collect(),
        Content::Object(_) => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}

fn refused(error: TemplateError) -> ApiError {
    ApiError::field("messages", error.to_string())
}

fn cannot_continue() -> ApiError {
    let public = "this model's chat template cannot leave the last message open; end `messages` \
                  with one of the user or a tool";
    ApiError::field("messages", public)
}
