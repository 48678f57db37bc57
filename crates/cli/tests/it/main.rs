//! The real binary, as a person types it.

mod asking;
mod chat;
mod command_line;
mod doctor;
mod hostile;
mod info;
mod support;
