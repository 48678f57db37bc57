//! The promises of this crate, one module each.

mod chat_template;
mod dialogue;
mod fuzz;
mod grammar;
mod injection;
mod jinja_semantics;
mod messages;
mod replies;
mod stream;
mod support;
mod tokenizer_goldens;
mod tokenizer_laws;
