//! `lapidary bench --accept P --draft-len N`: guesses with a luck that is given, so that their speed
//! can be measured on random weights.

use std::path::PathBuf;

use clap::Args;
use lapidary_core::Backend;
use lapidary_engine::Drafter;
use lapidary_measure::{Luck, Shape};
use lapidary_model::config::Config;

use crate::draft::assistant;
use crate::failure::Failure;
use crate::model::find;

/// Decoding with guesses, beside plain decoding.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LuckArgs {
    /// The model's own drafter; with --shape, one of a published drafter's shape is made up.
    #[arg(long, value_name = "PATH", requires = "accept", conflicts_with = "shape")]
    draft: Option<PathBuf>,
    /// Guesses in a row.
    #[arg(long, value_name = "N", requires = "accept",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    draft_len: Option<u32>,
    /// Decode with guesses too, each of which comes true with this chance if those before it did.
    #[arg(long, value_name = "P", requires = "draft_len", value_parser = chance)]
    accept: Option<f64>,
}

/// A drafter and its luck.
type Lucky<B> = (Box<dyn Drafter<B>>, Luck);

fn chance(text: &str) -> Result<f64, String> {
    let chance = text.parse().ok().filter(|p| (0.0..=1.0).contains(p));
    chance.ok_or_else(|| format!("`{text}` is no chance from 0 to 1"))
}

impl LuckArgs {
    /// What is to come of guesses, if any are made.
    pub(crate) fn luck(&self) -> Option<Luck> {
        Some(Luck { length: self.draft_len?, accept: self.accept? })
    }

    /// The drafter on the target's device, with its luck, if guesses are to be made. `shape` is the
    /// target's if it has no file.
    pub(crate) fn guesses<B: Backend>(
        &self,
        ops: &B,
        shape: Option<&Shape>,
        target: &Config,
    ) -> Result<Option<Lucky<B>>, Failure> {
        let Some(luck) = self.luck() else { return Ok(None) };
        let drafter = match (&self.draft, shape.map(Shape::drafter)) {
            (Some(path), _) => assistant(ops, &find(Some(path))?, target)?,
            (None, Some(Some(drafter))) => assistant(ops, &drafter, target)?,
            (None, Some(None)) => {
                let message = "this shape has too few layers to make a drafter for";
                return Err(Failure::usage("draft", message));
            }
            (None, None) => {
                let message = "--accept needs a drafter: name the model's own with --draft PATH";
                return Err(Failure::usage("draft", message));
            }
        };
        Ok(Some((drafter, luck)))
    }
}
