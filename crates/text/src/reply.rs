//! What a finished reply consists of: thoughts, text, tool calls.

use lapidary_core::TokenId;

use crate::{ReplyKind, ReplyPiece, ReplyStream, Tokenizer, ToolCall};

/// The parts of a reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// What is meant for the reader.
    pub content: String,
    /// What the model thought first; several thoughts are joined by newlines.
    pub reasoning: String,
    /// Calls, in order.
    pub tool_calls: Vec<ToolCall>,
}

impl Reply {
    /// Takes a reply's tokens apart, end tokens not among them: what [`ReplyStream`] makes of them,
    /// put together.
    pub fn of(tokens: &[TokenId], tokenizer: &Tokenizer) -> Self {
        let mut stream = ReplyStream::new(tokenizer);
        let mut reply = Self::default();
        for &token in tokens {
            reply.extend(stream.push(token, tokenizer));
        }
        reply.extend(stream.finish(tokenizer));
        reply
    }
}

impl Extend<ReplyPiece> for Reply {
    /// Takes in what a stream of the same reply yields.
    fn extend<T: IntoIterator<Item = ReplyPiece>>(&mut self, pieces: T) {
        for piece in pieces {
            match piece.kind {
                ReplyKind::Content(text) => self.content.push_str(&text),
                ReplyKind::Reasoning(text) => self.reasoning.push_str(&text),
                ReplyKind::Call(call) => self.tool_calls.push(call),
            }
        }
    }
}
