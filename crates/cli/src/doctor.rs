//! `lapidary doctor`: what this machine can do, and whether the built-in model answers as it should.

use std::time::Instant;

use lapidary_backend_cpu::{Cpu, Isa};
use lapidary_engine::{Event, Finish, Request};
use lapidary_measure::Ceilings;
use lapidary_text::{Conversation, Message, Role};
use serde_json::{Value, json};

use crate::args::{DeviceArgs, DoctorArgs, EngineArgs};
use crate::device::{Device, Gpu, gpus};
use crate::engine::start;
use crate::failure::Failure;
use crate::info::size;
use crate::memory::{all_bytes, free_bytes};
use crate::model::{Text, find};
use crate::run::rate;

/// What the built-in model is asked, and what every instruction set must make of it.
const QUESTION: &str = "What is the capital of Mongolia?";
const ANSWER: &str = "The capital of Mongolia is Ulaanbaatar.";

pub(crate) fn doctor(args: &DoctorArgs) -> Result<u8, Failure> {
    let isas: Vec<Isa> = Isa::ALL.into_iter().filter(|isa| isa.is_here()).collect();
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "system": format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH),
        "cpu": cpu(&isas)?,
        "memory": { "bytes": all_bytes(), "free_bytes": free_bytes() },
        "cuda": cuda(),
        "pebble": isas.iter().map(|isa| examine(*isa)).collect::<Result<Vec<_>, _>>()?,
    });
    if args.json {
        println!("{report}");
    } else {
        print(&report);
    }
    let answers = report["pebble"].as_array();
    let wrong = answers.into_iter().flatten().find(|answer| answer["right"] != true);
    match wrong {
        None => Ok(0),
        Some(wrong) => {
            let (isa, answer) = (&wrong["instruction_set"], &wrong["answer"]);
            let message =
                format!("the built-in model answers {answer} with {isa}; do not trust this build");
            Err(Failure::work("wrong_answer", message))
        }
    }
}

fn cpu(isas: &[Isa]) -> Result<Value, Failure> {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = <Cpu as Device>::open((Isa::best(), allowed))?;
    let ceilings = cpu.ceilings();
    Ok(json!({
        "model": cpu_model(),
        "cores_allowed": allowed,
        "cores": cores(),
        "instruction_sets": isas.iter().map(Isa::to_string).collect::<Vec<_>>(),
        "kernels": Isa::best().to_string(),
        "read_bytes_per_s": ceilings.map(|Ceilings { bytes_per_s, .. }| bytes_per_s),
        "multiply_ops_per_s": ceilings.map(|Ceilings { ops_per_s, .. }| ops_per_s),
    }))
}

/// What the processor calls itself, where the system tells.
fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Cores that are switched on, whether this process may use them or not.
fn cores() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    (count > 0).then_some(count)
}

fn cuda() -> Vec<Value> {
    let device = |(index, gpu)| match gpu {
        Ok(Gpu { name, free_bytes, total_bytes }) => json!({
            "index": index, "name": name, "free_bytes": free_bytes, "bytes": total_bytes,
        }),
        Err(reason) => json!({ "index": index, "unusable": reason }),
    };
    let gpus = gpus().into_iter().map(|gpu| gpu.map_err(|error| error.to_string()));
    gpus.enumerate().map(device).collect()
}

/// Asks the built-in model through one instruction set.
fn examine(isa: Isa) -> Result<Value, Failure> {
    let source = find(None)?;
    let text = Text::of(&source)?;
    let chat = Conversation::new(vec![Message::new(Role::User, QUESTION)]);
    let prompt = text.template()?.render(&chat).map_err(|e| Failure::work("template", e))?;
    let args = DeviceArgs { isa: Some(isa), ctx: Some(256), ..DeviceArgs::untyped() };
    let running = start(source, &args, &EngineArgs::default())?;
    let prompt = prompt.encode(&text.tokenizer);
    let request =
        Request { stop: text.end.clone(), ..Request::new(running.engine.next_id(), prompt) };
    let began = Instant::now();
    let mut tokens = Vec::new();
    for event in running.engine.submit(request).map_err(|e| Failure::work("refused", e))? {
        match event {
            Event::Token { token, .. } => tokens.push(token),
            Event::Finished { finish: Finish::Failed(reason), .. } => {
                return Err(Failure::work("engine", reason));
            }
            _ => {}
        }
    }
    let answer = text.tokenizer.decode(&tokens);
    Ok(json!({
        "instruction_set": isa.to_string(),
        "answer": answer,
        "right": answer == ANSWER,
        "tok_s": rate(tokens.len(), began.elapsed()),
    }))
}

fn print(report: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let bytes = |value: &Value| value.as_u64().map_or_else(|| "unknown".into(), size);
    let giga = |value: &Value| value.as_f64().unwrap_or(0.0) / 1e9;
    let cpu = &report["cpu"];
    println!("lapidary      {}, {}", text(&report["version"]), text(&report["system"]));
    println!("processor     {}", text(&cpu["model"]));
    let cores = cpu["cores"].as_u64().map_or_else(String::new, |all| format!(", {all} in all"));
    println!("cores         {} allowed{cores}", cpu["cores_allowed"]);
    let isas: Vec<_> = cpu["instruction_sets"].as_array().into_iter().flatten().map(text).collect();
    println!("instructions  {}; kernels use {}", isas.join(", "), text(&cpu["kernels"]));
    let (read, multiply) = (giga(&cpu["read_bytes_per_s"]), giga(&cpu["multiply_ops_per_s"]));
    println!("speed         {read:.1} GB/s read, {multiply:.0} Gop/s multiplied");
    let memory = &report["memory"];
    println!("memory        {}, {} free", bytes(&memory["bytes"]), bytes(&memory["free_bytes"]));
    for gpu in report["cuda"].as_array().into_iter().flatten() {
        match gpu["unusable"].as_str() {
            Some(reason) => println!("cuda          {reason}"),
            None => println!(
                "cuda:{:<8} {}, {}, {} free",
                gpu["index"],
                text(&gpu["name"]),
                bytes(&gpu["bytes"]),
                bytes(&gpu["free_bytes"])
            ),
        }
    }
    for answer in report["pebble"].as_array().into_iter().flatten() {
        let right =
            if answer["right"] == true { "answers as it should" } else { "ANSWERS WRONGLY" };
        let rate = answer["tok_s"].as_f64().unwrap_or(0.0);
        println!(
            "built-in      {right} with {}, {rate:.0} tok/s",
            text(&answer["instruction_set"])
        );
    }
}
