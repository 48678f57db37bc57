//! The command line: what was typed becomes values, values become an engine.
#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod args;
mod bench;
mod chat;
mod convert;
mod device;
mod doctor;
mod draft;
mod embed;
mod engine;
mod eval;
mod failure;
mod hub;
mod imatrix;
mod info;
mod interrupt;
mod memory;
mod model;
mod prompt_cache;
mod rules;
mod run;
mod sampling;
mod search;
mod serve;
mod sight;
mod tokenize;
mod trace;
mod usage;
mod verify;

use std::process::ExitCode;

use args::{Command, Typed};
use clap::Parser;

fn main() -> ExitCode {
    let typed = match Typed::try_parse() {
        Ok(typed) => typed,
        Err(error) => return usage::explain(&error),
    };
    let (outcome, json) = match &typed.command {
        Command::Run(args) => (run::run(args), args.json),
        Command::Chat(args) => (chat::chat(args), false),
        Command::Serve(args) => (serve::serve(args), false),
        Command::Tokenize(args) => (tokenize::tokenize(args), args.json),
        Command::Info(args) => (info::info(args), args.json),
        Command::Eval(args) => (eval::eval(args), args.json),
        Command::Bench(args) => (bench::bench(args), args.json),
        Command::Embed(args) => (embed::embed(args), args.json),
        Command::Convert(args) => (convert::convert(args), args.store.json),
        Command::Quantize(args) => (convert::quantize(args), args.store.json),
        Command::Imatrix(args) => (imatrix::imatrix(args), args.json),
        Command::Pull(args) => (hub::pull(args), args.json),
        Command::List(args) => (hub::list(args), args.json),
        Command::Rm(args) => (hub::remove(args), args.json),
        Command::Doctor(args) => (doctor::doctor(args), args.json),
        Command::Diff(args) => (trace::diff(args), false),
    };
    ExitCode::from(outcome.unwrap_or_else(|failure| failure.report(json)))
}
