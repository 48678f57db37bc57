//! The command line: what was typed becomes values, values become an engine.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod device;
mod engine;
mod eval;
mod failure;
mod info;
mod memory;
mod model;
mod run;
mod serve;
mod tokenize;

use std::process::ExitCode;

use args::{Command, Typed};
use clap::Parser;

fn main() -> ExitCode {
    let typed = Typed::parse();
    let (outcome, json) = match &typed.command {
        Command::Run(args) => (run::run(args), args.json),
        Command::Serve(args) => (serve::serve(args), false),
        Command::Tokenize(args) => (tokenize::tokenize(args), args.json),
        Command::Info(args) => (info::info(args), args.json),
        Command::Eval(args) => (eval::eval(args), args.json),
        Command::Bench(args) => (bench::bench(args), args.json),
    };
    ExitCode::from(outcome.unwrap_or_else(|failure| failure.report(json)))
}
