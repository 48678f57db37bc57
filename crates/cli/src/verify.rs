//! `lapidary info --verify`: whether a file holds what it was made from.

use std::path::Path;

use lapidary_convert::{Compared, ConvertError, Draft, Finding, Progress, verify as compare};
use lapidary_core::TensorSource;
use lapidary_format::{Gguf, Source, open};
use serde_json::json;

use crate::convert::workers;
use crate::engine::bar;
use crate::failure::Failure;

pub(crate) fn verify(file: &Source, original: &Path, json: bool) -> Result<u8, Failure> {
    let Source::Gguf(file) = file else {
        let message = "--verify compares a GGUF file with its source; name a file with -m";
        return Err(Failure::usage("verify", message));
    };
    let original = open(original).map_err(|e| Failure::work("model_unreadable", e))?;
    let draft = draft(file, &original).map_err(|e| Failure::work("conversion", e))?;
    let bar = bar("comparing {bar:40} {percent} %, {eta} left, {msg}");
    let mut progress = |at: Progress<'_>| {
        bar.set_length(at.total);
        bar.set_position(at.done);
        bar.set_message(at.tensor.to_owned());
    };
    let compared = compare(file, &draft, &workers(None)?, &mut progress);
    bar.finish_and_clear();
    let compared = compared.map_err(|e| Failure::work("conversion", e))?;
    show(&compared, json);
    let bad = compared.iter().filter(|tensor| !tensor.finding.is_good()).count();
    if bad == 0 {
        return Ok(0);
    }
    let message = format!("{bad} of {} tensors are not what the source holds", compared.len());
    Err(Failure::work("verify", message))
}

/// The source as it would be converted to this kind of file.
fn draft<'a>(file: &Gguf, original: &'a Source) -> Result<Draft<'a>, ConvertError> {
    let architecture = file.meta().get("general.architecture").and_then(|name| name.as_str());
    match original {
        Source::Gguf(gguf) => Draft::of_gguf(gguf),
        Source::Folder(folder) if architecture == Some("clip") => Draft::of_vision(folder, ""),
        Source::Folder(folder) => Draft::of_folder(folder, ""),
    }
}

fn show(compared: &[Compared], json: bool) {
    if json {
        let tensors = compared.iter().map(|tensor| {
            json!({
                "name": tensor.name,
                "good": tensor.finding.is_good(),
                "finding": words(&tensor.finding),
            })
        });
        println!("{}", json!({ "tensors": tensors.collect::<Vec<_>>() }));
        return;
    }
    for tensor in compared {
        println!("  {:<44} {}", tensor.name, words(&tensor.finding));
    }
}

fn words(finding: &Finding) -> String {
    match finding {
        Finding::Exact(block) => format!("{block}, exact"),
        Finding::Near(block, error) => format!("{block}, off by {:.2} %", 100.0 * error),
        Finding::Far(block, error) => {
            format!("{block}, OFF BY {:.0} %: more than its type explains", 100.0 * error)
        }
        Finding::Missing => "MISSING from the file".to_owned(),
        Finding::Unknown => "NOT IN the source".to_owned(),
        Finding::Shape(theirs, ours) => format!("SHAPE {ours:?} instead of {theirs:?}"),
    }
}
