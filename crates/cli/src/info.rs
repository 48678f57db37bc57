//! `lapidary info`: what a model file holds and what it takes to run it.

use std::collections::BTreeMap;

use lapidary_cache::KvBytes;
use lapidary_core::{Reach, TensorInfo, TensorSource};
use lapidary_format::Source;
use lapidary_model::config::Config;
use serde_json::{Value, json};

use crate::args::InfoArgs;
use crate::engine::{check_layers, context, extent, stored_layers};
use crate::failure::Failure;
use crate::memory::{fitting_context, free_bytes};
use crate::model::{self, find};
use crate::verify::verify;

pub(crate) fn info(args: &InfoArgs) -> Result<u8, Failure> {
    let source = find(args.model.model.as_deref())?;
    if let Some(original) = &args.verify {
        return verify(&source, original, args.json);
    }
    let config = model::config(&source)?;
    let report = report(&source, &config, args)?;
    if args.json {
        println!("{report}");
    } else {
        print(&report);
    }
    Ok(0)
}

fn tensors(source: &Source) -> impl Iterator<Item = (&str, &TensorInfo)> {
    source.names().into_iter().filter_map(|name| Some((name, source.info(name)?)))
}

fn report(source: &Source, config: &Config, args: &InfoArgs) -> Result<Value, Failure> {
    let mut types: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (_, info) in tensors(source) {
        let entry = types.entry(info.block.to_string()).or_default();
        *entry = (entry.0 + 1, entry.1 + info.bytes() as u64);
    }
    check_layers(&args.kv, config)?;
    let context = context(args.ctx, config)?;
    let kv = KvBytes::per_slot(&extent(context), stored_layers(config, &args.kv));
    let free = free_bytes();
    let global = config.layers.iter().filter(|layer| layer.reach == Reach::All).count();
    let listed = |(name, info): (&str, &TensorInfo)| json!({ "name": name, "type": info.block.to_string(), "shape": info.shape });
    let types: Vec<_> = types
        .iter()
        .map(|(name, (count, bytes))| json!({ "type": name, "tensors": count, "bytes": bytes }))
        .collect();
    Ok(json!({
        "model": source.origin(),
        "architecture": config.architecture,
        "parameters": tensors(source).map(|(_, info)| info.elements() as u64).sum::<u64>(),
        "weight_bytes": tensors(source).map(|(_, info)| info.bytes() as u64).sum::<u64>(),
        "types": types,
        "layers": { "global": global, "sliding": config.layers.len() - global },
        "hidden": config.hidden,
        "experts": config.experts.map(|experts| json!({
            "count": experts.count, "used": experts.top_k, "width": experts.width,
        })),
        "model_context": config.context,
        "kv": args.kv.to_string(),
        "context": context,
        "kv_bytes_per_slot": { "global": kv.global, "sliding": kv.sliding },
        "free_bytes": free,
        "largest_context": free.and_then(|free| fitting_context(source, config, &args.kv, free)),
        "tensors": if args.tensors { tensors(source).map(listed).collect() } else { Vec::new() },
    }))
}

fn print(report: &Value) {
    let bytes = |value: &Value| size(value.as_u64().unwrap_or(0));
    let text = |key: &str| report[key].as_str().unwrap_or("").to_owned();
    let kv = &report["kv_bytes_per_slot"];
    let total = kv["global"].as_u64().unwrap_or(0) + kv["sliding"].as_u64().unwrap_or(0);
    println!("model         {}", text("model"));
    println!("architecture  {}", text("architecture"));
    println!("parameters    {}", report["parameters"]);
    println!("weights       {}", bytes(&report["weight_bytes"]));
    for kind in report["types"].as_array().into_iter().flatten() {
        let name = kind["type"].as_str().unwrap_or("");
        println!("  {name:<8}    {:>4} tensors, {}", kind["tensors"], bytes(&kind["bytes"]));
    }
    let layers = &report["layers"];
    println!("layers        {} global, {} sliding", layers["global"], layers["sliding"]);
    if let Some(experts) = report["experts"].as_object() {
        println!("experts       {}, {} used", experts["count"], experts["used"]);
    }
    println!("context       {} of at most {}", report["context"], report["model_context"]);
    println!(
        "cache         {} per sequence as {}: {} global, {} sliding",
        size(total),
        text("kv"),
        bytes(&kv["global"]),
        bytes(&kv["sliding"])
    );
    if let Some(free) = report["free_bytes"].as_u64() {
        let largest = report["largest_context"].as_u64();
        let largest = largest.map_or_else(|| "no sequence".into(), |n| format!("{n} tokens"));
        println!("fits          {largest} in {} of free memory, beside the weights", size(free));
    }
    for tensor in report["tensors"].as_array().into_iter().flatten() {
        let (name, kind) = (tensor["name"].as_str(), tensor["type"].as_str());
        println!("  {:<44} {:<6} {}", name.unwrap_or(""), kind.unwrap_or(""), tensor["shape"]);
    }
}

/// Bytes as a person reads them.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
