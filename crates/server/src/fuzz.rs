//! Entry points for fuzzers: any bytes must give a request or a refusal, never a panic.

use crate::body::parse;
use crate::tools::{Choice, declared};
use crate::wire::chat::ChatRequest;
use crate::wire::completions::CompletionRequest;
use crate::wire::embeddings::EmbeddingRequest;
use crate::wire::messages::MessagesRequest;
use crate::wire::responses::ResponsesRequest;
use crate::{messages, responses};

/// Reads `data` as a request of every route, as far as no model is needed.
pub fn request(data: &[u8]) {
    for strict in [false, true] {
        if let Ok(asked) = parse::<ChatRequest>(data, strict) {
            chat(&asked);
        }
        if let Ok(asked) = parse::<MessagesRequest>(data, strict) {
            messages::chat_request(asked).iter().for_each(chat);
        }
        if let Ok(asked) = parse::<ResponsesRequest>(data, strict) {
            responses::chat_request(asked).iter().for_each(chat);
        }
        // Whether they can be read is all there is to them.
        let _ = parse::<CompletionRequest>(data, strict);
        let _ = parse::<EmbeddingRequest>(data, strict);
    }
}

fn chat(asked: &ChatRequest) {
    if let Some(messages) = &asked.messages {
        // A refusal is as good as a list.
        let _ = lapidary_text::Message::list_from_json(messages);
    }
    let Ok(tools) = declared(asked.tools.as_deref().unwrap_or_default()) else { return };
    if let Ok(Choice::Required | Choice::Named(_)) = Choice::of(asked.tool_choice.as_ref(), &tools)
    {
        assert!(!tools.is_empty(), "nothing can be called");
    }
}
