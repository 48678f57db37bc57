//! Watching a run: where its time goes, what its layers compute, where it goes astray.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};

use clap::Args;
use lapidary_measure::{Sinks, Totals, first_difference, read_layer_rows};

use crate::args::DiffArgs;
use crate::failure::Failure;

/// What is watched. Watched runs are slower and compute the same.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TraceArgs {
    /// Write when each operation ran and for how long to this file, for Chrome's or Perfetto's
    /// trace viewer, and show totals at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Write a checksum of every row after every layer to this file; see `lapidary diff`.
    #[arg(long, value_name = "FILE")]
    pub(crate) dump_layers: Option<PathBuf>,
    /// Stop at the first operation whose result is not finite, and name it.
    #[arg(long)]
    pub(crate) guard: bool,
}

/// The end of a watched run.
pub(crate) struct Watched(Receiver<std::io::Result<Totals>>);

impl TraceArgs {
    /// Whether anything is watched.
    pub(crate) fn watches(&self) -> bool {
        self.trace.is_some() || self.dump_layers.is_some() || self.guard
    }

    /// Opens the files.
    pub(crate) fn sinks(&self) -> Result<(Sinks, Watched), Failure> {
        let (totals, told) = channel();
        let trace = self.trace.as_deref().map(create).transpose()?;
        let layers = self.dump_layers.as_deref().map(create).transpose()?;
        let sinks = Sinks { trace, layers, totals: Some(totals), guard: self.guard };
        Ok((sinks, Watched(told)))
    }
}

impl Watched {
    /// Waits until everything is written. The engine must be gone, or about to go. Shows where the
    /// time went if `totals`.
    pub(crate) fn finish(self, totals: bool) -> Result<(), Failure> {
        let written = self.0.recv().map_err(|e| Failure::work("trace", e))?;
        let seen = written.map_err(|e| Failure::work("trace", e))?;
        if totals {
            eprint!("{seen}");
        }
        Ok(())
    }
}

fn create(path: &Path) -> Result<Box<dyn Write + Send>, Failure> {
    let file = File::create(path);
    let file = file.map_err(|e| Failure::work("trace", format!("{}: {e}", path.display())))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Shows the first place where two layer dumps differ; status 1 if there is one.
pub(crate) fn diff(args: &DiffArgs) -> Result<u8, Failure> {
    let read = |path: &Path| {
        let named = |e: &dyn std::fmt::Display| {
            Failure::work("layer_dump", format!("{}: {e}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|e| named(&e))?;
        read_layer_rows(&text).map_err(|e| named(&e))
    };
    let (left, right) = (read(&args.left)?, read(&args.right)?);
    let Some(found) = first_difference(&left, &right) else {
        println!("no difference in the positions that both runs have");
        return Ok(0);
    };
    let place = match found.left.layer {
        Some(layer) => format!("after layer {layer}"),
        None => "in the embeddings".to_owned(),
    };
    let (slot, pos) = (found.left.slot, found.left.pos);
    println!("the first difference is at position {pos} of slot {slot}, {place}");
    println!("  {}: rms {:e} in step {}", args.left.display(), found.left.rms, found.left.step);
    println!("  {}: rms {:e} in step {}", args.right.display(), found.right.rms, found.right.step);
    Ok(1)
}
