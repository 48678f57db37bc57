//! `lapidary convert` and `quantize`: GGUF files from folders and from other GGUF files.

use std::collections::BTreeMap;
use std::path::Path;

use lapidary_convert::{
    Again, ConvertError, Draft, Imatrix, Mix, Progress, Recipe, Workers, Written,
};
use lapidary_core::BlockType;
use lapidary_format::{Folder, Gguf, Source};
use serde_json::json;

use crate::args::files::{ConvertArgs, QuantizeArgs, StoreArgs, TargetArgs};
use crate::engine::bar;
use crate::failure::Failure;
use crate::info::size;
use crate::search::Search;

pub(crate) fn convert(args: &ConvertArgs) -> Result<u8, Failure> {
    let folder = Folder::open(&args.folder).map_err(|e| Failure::work("model_unreadable", e))?;
    let named = args.folder.canonicalize().ok();
    let named = named.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    let name = args.name.clone().or_else(|| named.map(Into::into)).unwrap_or_default();
    let draft = match args.vision {
        true => Draft::of_vision(&folder, &name),
        false => Draft::of_folder(&folder, &name),
    };
    let draft = draft.map_err(failed)?;
    let store = Store::new(&args.store)?;
    let named = store.named(&draft)?;
    store.write(draft, &args.output, Types { mix: args.quant, named }, Again::Refuse)
}

pub(crate) fn quantize(args: &QuantizeArgs) -> Result<u8, Failure> {
    let gguf = Gguf::open(&args.input).map_err(|e| Failure::work("model_unreadable", e))?;
    let source = Source::Gguf(gguf);
    let Source::Gguf(gguf) = &source else { unreachable!("it was made one line above") };
    let draft = Draft::of_gguf(gguf).map_err(failed)?;
    let store = Store::new(&args.store)?;
    let types = match (args.mix, &args.search.text) {
        (Some(mix), _) => Types { mix, named: store.named(&draft)? },
        (None, Some(text)) => store.search(&source, &draft, &args.search, text)?,
        (None, None) => unreachable!("the parser asks for a mix, or a target and a text"),
    };
    let again = if args.requantize { Again::Allow } else { Again::Refuse };
    store.write(draft, &args.output, types, again)
}

fn failed(error: ConvertError) -> Failure {
    Failure::work("conversion", error)
}

/// The types of a file's tensors.
struct Types {
    mix: Mix,
    named: BTreeMap<String, BlockType>,
}

/// What it takes to store a file.
struct Store<'a> {
    args: &'a StoreArgs,
    workers: Workers,
    imatrix: Option<(Imatrix, String)>,
}

impl<'a> Store<'a> {
    fn new(args: &'a StoreArgs) -> Result<Self, Failure> {
        let read = |path: &Path| -> Result<_, Failure> {
            let imatrix = Imatrix::read(path);
            let imatrix = imatrix.map_err(|e| Failure::work("imatrix_unreadable", e))?;
            Ok((imatrix, path.display().to_string()))
        };
        let imatrix = args.imatrix.as_deref().map(read).transpose()?;
        Ok(Self { args, workers: workers(args.threads)?, imatrix })
    }

    /// The types that were named one by one.
    fn named(&self, draft: &Draft<'_>) -> Result<BTreeMap<String, BlockType>, Failure> {
        let named: BTreeMap<_, _> = self.args.tensor_type.iter().cloned().collect();
        let known = |name: &String| draft.tensors().any(|tensor| tensor.name == *name);
        match named.keys().find(|name| !known(name)) {
            None => Ok(named),
            Some(name) => {
                let message = format!("--tensor-type {name}: no such tensor; see `info --tensors`");
                Err(Failure::usage("tensor_unknown", message))
            }
        }
    }

    fn search(
        &self,
        source: &Source,
        draft: &Draft<'_>,
        args: &TargetArgs,
        text: &Path,
    ) -> Result<Types, Failure> {
        let search = Search {
            source,
            draft,
            importance: self.imatrix.as_ref().map(|(imatrix, _)| imatrix),
            workers: &self.workers,
            args,
            text,
            threads: self.args.threads,
            json: self.args.json,
        };
        let choices = search.run()?.choices;
        let mut named: BTreeMap<_, _> =
            choices.iter().map(|choice| (choice.name.clone(), choice.block)).collect();
        let mix = Mix::mostly(choices.iter().map(|choice| (choice.block, choice.bytes)));
        named.extend(self.named(draft)?);
        Ok(Types { mix, named })
    }

    fn write(
        &self,
        draft: Draft<'_>,
        output: &Path,
        Types { mix, named }: Types,
        again: Again,
    ) -> Result<u8, Failure> {
        let importance = self.imatrix.as_ref().map(|(imatrix, path)| (imatrix, path.as_str()));
        let bar = bar("writing {bar:40} {percent} %, {eta} left, {msg}");
        let mut progress = |at: Progress<'_>| {
            bar.set_length(at.total);
            bar.set_position(at.done);
            bar.set_message(at.tensor.to_owned());
        };
        let recipe = Recipe { mix, named, importance, again };
        let written = draft.write(&recipe, output, &self.workers, &mut progress);
        bar.finish_and_clear();
        show(&written.map_err(failed)?, output, self.args.json);
        Ok(0)
    }
}

/// As many threads as asked for, or as there are.
pub(crate) fn workers(asked: Option<u16>) -> Result<Workers, Failure> {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = asked.map_or(here, usize::from);
    Workers::new(threads).map_err(|e| Failure::work("threads", e))
}

fn show(written: &[Written], output: &Path, json: bool) {
    let bytes: u64 = written.iter().map(Written::bytes).sum();
    let elements: usize = written.iter().map(|tensor| tensor.shape.iter().product::<usize>()).sum();
    let mut types: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for tensor in written {
        let own = types.entry(tensor.to.to_string()).or_default();
        *own = (own.0 + 1, own.1 + tensor.bytes());
    }
    let weighed = written.iter().filter(|tensor| tensor.weighed).count();
    let bits = 8.0 * bytes as f64 / elements as f64;
    if json {
        let types = types.iter().map(
            |(name, (tensors, bytes))| json!({ "type": name, "tensors": tensors, "bytes": bytes }),
        );
        let report = json!({
            "file": output.display().to_string(),
            "weight_bytes": bytes,
            "bits_per_weight": bits,
            "types": types.collect::<Vec<_>>(),
            "with_importance": weighed,
        });
        println!("{report}");
        return;
    }
    println!("{}: {} of weights, {bits:.2} bits each", output.display(), size(bytes));
    for (name, (tensors, bytes)) in types {
        println!("  {name:<8} {tensors:>5} tensors, {}", size(bytes));
    }
    if weighed > 0 {
        println!("importance weighed the errors of {weighed} tensors");
    }
}
