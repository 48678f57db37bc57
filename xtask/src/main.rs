//! Tasks that are more than one cargo command: `cargo xtask TASK`.

#![forbid(unsafe_code)]

mod callgrind;
mod check;
mod contract;
mod fetch;
mod fuzz;
mod gpu;

use std::process::ExitCode;

/// Something that can be asked for.
struct Task {
    name: &'static str,
    description: &'static str,
    run: fn() -> anyhow::Result<()>,
}

const TASKS: [Task; 8] = [
    Task {
        name: "callgrind",
        description: "instructions of a decoded and of a read token; --accept keeps new counts",
        run: callgrind::callgrind,
    },
    Task { name: "check", description: "everything that a change must pass", run: check::check },
    Task {
        name: "contract",
        description: "the official clients of OpenAI and Anthropic against a real server",
        run: contract::contract,
    },
    Task {
        name: "fetch",
        description: "bring the models that tests use and that may not be committed",
        run: fetch::fetch,
    },
    Task {
        name: "fuzz",
        description: "every reader of foreign bytes, 30 seconds each or --seconds N",
        run: fuzz::fuzz,
    },
    Task {
        name: "gpu-pack",
        description: "pack the CUDA tests and benchmark for a machine without Rust",
        run: gpu::pack,
    },
    Task { name: "gpu-test", description: "the CUDA tests; a skip is a failure", run: gpu::test },
    Task { name: "gpu-bench", description: "the CUDA benchmark", run: gpu::bench },
];

fn main() -> ExitCode {
    let asked = std::env::args().nth(1);
    let Some(task) = TASKS.iter().find(|task| Some(task.name) == asked.as_deref()) else {
        eprintln!("usage: cargo xtask TASK");
        for Task { name, description, .. } in TASKS {
            eprintln!("  {name:<10} {description}");
        }
        return ExitCode::from(2);
    };
    match (task.run)() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
