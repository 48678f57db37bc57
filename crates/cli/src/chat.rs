//! `lapidary chat`: a conversation in the terminal, or over lines of standard input.

mod answer;
mod command;
mod editor;
mod lines;
mod screen;
mod session;

use std::io::IsTerminal;
use std::path::Path;

use lapidary_text::{Dialogue, StopStrings};
use serde_json::Value;

use crate::args::{ChatArgs, Preset};
use crate::engine::start;
use crate::failure::Failure;
use crate::hub::find_or_pull;
use crate::interrupt::Interrupt;
use crate::model::{Feature, Text, noticed};
use crate::sampling::sampling;
use editor::Editor;
use lines::{Lines, Read};
use screen::Screen;
use session::{Next, Session, Settings, Trouble};

pub(crate) fn chat(args: &ChatArgs) -> Result<u8, Failure> {
    let stop = StopStrings::new(args.sampling.stop.clone());
    let stop = stop.map_err(|e| Failure::usage("stop", e))?;
    let dialogue = opening(args)?;
    let source = find_or_pull(&args.model)?;
    let text = Text::with_template(&source, args.template.chat_template.as_deref())?;
    let template = text.template()?;
    if dialogue.think {
        noticed(template, Feature::Thinking)?;
    }
    if !dialogue.tools.is_empty() {
        noticed(template, Feature::Tools(&dialogue.tools))?;
    }
    let sampling = sampling(&args.sampling, Preset::Model, &source, &text)?;
    let settings =
        Settings { sampling, max_tokens: args.sampling.max_tokens, stop, overflow: args.overflow };
    let interrupt = Interrupt::listen()?;
    let running = start(source, &args.device, &args.engine)?;
    let out = std::io::stdout();
    let ansi = out.is_terminal();
    let screen = Screen::new(out, ansi);
    let session = Session::new(&running, &text, template, settings, dialogue, screen);
    let at_terminal = std::io::stdin().is_terminal();
    let lines = if at_terminal { Lines::Typed(Box::new(Editor::new())) } else { Lines::piped() };
    let done = converse(session, lines, &interrupt)?;
    running.stop(&args.engine)?;
    // At a terminal a person has seen what failed and gone on.
    Ok(if at_terminal || done { 0 } else { 1 })
}

/// What was said before the first line.
fn opening(args: &ChatArgs) -> Result<Dialogue, Failure> {
    let mut dialogue = match &args.load {
        Some(file) => {
            let value = read_json(file).map_err(|e| Failure::work("conversation", e))?;
            Dialogue::from_json(&value)
                .map_err(|e| Failure::work("conversation", format!("{}: {e}", file.display())))?
        }
        None => Dialogue::default(),
    };
    if let Some(file) = &args.tools {
        dialogue.tools = read_tools(file).map_err(|e| Failure::work("tools", e))?;
    }
    dialogue.system = args.template.system.clone().or(dialogue.system);
    dialogue.think = args.template.think;
    Ok(dialogue)
}

/// Reads lines and does what they say until there are no more. Whether everything went well.
fn converse(
    mut session: Session<'_>,
    mut lines: Lines,
    interrupt: &Interrupt,
) -> Result<bool, Failure> {
    let mut well = true;
    session.greet();
    loop {
        let text = match lines.next(&session.prompt())? {
            Read::Text(text) => text,
            Read::Cleared => continue,
            Read::End => return Ok(well),
        };
        match interrupt.during(|pressed| session.handle(&text, pressed)) {
            Ok(Next::Line) => {}
            Ok(Next::Quit) => return Ok(well),
            Err(Trouble::Told(message)) => {
                eprintln!("error: {message}");
                well = false;
            }
            Err(Trouble::Fatal(failure)) => return Err(failure),
        }
    }
}

/// The JSON of a file.
fn read_json(file: &Path) -> Result<Value, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| format!("{name}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{name} is not JSON: {e}"))
}

/// A file's list of declarations.
fn read_tools(file: &Path) -> Result<Vec<Value>, String> {
    match read_json(file)? {
        Value::Array(tools) => Ok(tools),
        _ => Err(format!("{} is not a list of tools, as OpenAI's `tools` is", file.display())),
    }
}
