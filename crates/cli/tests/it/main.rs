//! The real binary, as a person types it.

mod ahead;
mod asking;
mod chat;
mod command_line;
mod doctor;
mod files;
mod hostile;
mod hub;
mod images;
mod info;
mod memory;
mod serve;
mod support;
