//! Tasks that are more than one cargo command: `cargo xtask TASK`.

mod check;
mod fetch;

use std::process::ExitCode;

/// What can be asked for: name, description, task.
const TASKS: &[(&str, &str, fn() -> anyhow::Result<()>)] = &[
    ("check", "everything that a change must pass", check::check),
    ("fetch", "bring the models that tests use and that may not be committed", fetch::fetch),
];

fn main() -> ExitCode {
    let asked = std::env::args().nth(1);
    let task = TASKS.iter().find(|(name, ..)| Some(*name) == asked.as_deref());
    let Some((.., task)) = task else {
        eprintln!("usage: cargo xtask TASK");
        for (name, description, _) in TASKS {
            eprintln!("  {name:<10} {description}");
        }
        return ExitCode::from(2);
    };
    match task() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
