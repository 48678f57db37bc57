//! The command line: what was typed becomes values, values become an engine.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod convert;
mod device;
mod engine;
mod eval;
mod failure;
mod imatrix;
mod info;
mod memory;
mod model;
mod run;
mod search;
mod tokenize;
mod verify;

use std::process::ExitCode;

use args::{Command, Typed};
use clap::Parser;

fn main() -> ExitCode {
    let typed = Typed::parse();
    let (outcome, json) = match &typed.command {
        Command::Run(args) => (run::run(args), args.json),
        Command::Tokenize(args) => (tokenize::tokenize(args), args.json),
        Command::Info(args) => (info::info(args), args.json),
        Command::Eval(args) => (eval::eval(args), args.json),
        Command::Bench(args) => (bench::bench(args), args.json),
        Command::Convert(args) => (convert::convert(args), args.store.json),
        Command::Quantize(args) => (convert::quantize(args), args.store.json),
        Command::Imatrix(args) => (imatrix::imatrix(args), args.json),
    };
    ExitCode::from(outcome.unwrap_or_else(|failure| failure.report(json)))
}
