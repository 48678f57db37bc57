//! Between text and tokens: vocabularies, chat templates, streamed text, stop strings, grammars.
//!
//! Read in this order: [`Tokenizer`], [`TextStream`], [`StopStrings`], [`Conversation`],
//! [`ChatTemplate`], [`Prompt`], [`Grammars`]. Nothing here knows HTTP, a model or a file: callers hand over text
//! and metadata.
#![forbid(unsafe_code)]

mod bpe;
mod specials;
mod tokenizer;
mod tokenizer_gguf;
mod tokenizer_json;
mod vocabulary;

mod stop;
mod stream;
mod token_text;

mod gbnf;
mod grammar;
mod guide;

mod call;
mod call_grammar;
mod context;
mod conversation;
mod dialogue;
mod dialogue_json;
mod images;
mod jinja;
mod message_json;
mod normalise;
mod prompt;
mod python;
mod reply;
mod reply_stream;
mod results;
mod scored;
mod shield;
mod template;

#[doc(hidden)]
pub mod fuzz;

pub use call_grammar::{Calls, call_grammar};
pub use conversation::{
    Content, Conversation, MediaKind, Message, Part, Role, ToolCall, ToolResponse,
};
pub use dialogue::{Dialogue, Fitted, Overflow, Unfit};
pub use dialogue_json::DialogueError;
pub use gbnf::BadGbnf;
pub use grammar::{GrammarError, Grammars, Rules, Thinking};
pub use guide::Guide;
pub use images::{NoRoomForImages, WithImages, make_room};
pub use message_json::MessageError;
pub use normalise::normalise;
pub use prompt::{Piece, Prompt};
pub use reply::Reply;
pub use reply_stream::{ReplyKind, ReplyPiece, ReplyStream};
pub use specials::Specials;
pub use stop::{EmptyStop, Passed, StopStrings};
pub use stream::TextStream;
pub use template::{ChatTemplate, Fault, TemplateError};
pub use token_text::TokenText;
pub use tokenizer::{Control, Tokenizer, TokenizerError};
