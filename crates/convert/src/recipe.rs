//! What a file is to be stored as.

use std::collections::BTreeMap;
use std::path::Path;

use lapidary_core::BlockType;
use lapidary_format::gguf::GgufValue;

use crate::choice::{self, Candidate};
use crate::draft::{Draft, Planned};
use crate::imatrix::Imatrix;
use crate::metadata::text;
use crate::workers::Workers;
use crate::write::{Progress, Written, write};
use crate::{ConvertError, Mix};

/// How a draft is stored.
#[derive(Clone, Debug)]
pub struct Recipe<'a> {
    /// The types of tensors that are not named below.
    pub mix: Mix,
    /// Types of single tensors.
    pub named: BTreeMap<String, BlockType>,
    /// How much each column matters, and what the file is called.
    pub importance: Option<(&'a Imatrix, &'a str)>,
    /// What is done about tensors that are codes already and are to become other codes.
    pub again: Again,
}

/// What is done about codes that are to become other codes: their errors would add up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Again {
    /// Refused.
    Refuse,
    /// Decoded and quantised again.
    Allow,
}

impl<'a> Recipe<'a> {
    /// A mix, without importance.
    pub fn plain(mix: Mix) -> Self {
        Self { mix, named: BTreeMap::new(), importance: None, again: Again::Refuse }
    }
}

impl Draft<'_> {
    /// Names, shapes and how the source stores them, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = Candidate<'_>> {
        self.tensors.iter().map(|Planned { name, shape, stored, .. }| Candidate {
            name,
            shape,
            stored: *stored,
        })
    }

    /// The type of every tensor, in the order of the file.
    pub fn types(&self, recipe: &Recipe<'_>) -> Vec<BlockType> {
        let base = recipe.mix.base();
        let candidates: Vec<_> = self
            .tensors()
            .map(|tensor| {
                // Among plain numbers, what is not kept as 32-bit floats follows the mix.
                let plain = !base.is_quantised() && !tensor.stored.is_quantised();
                let follows = plain && tensor.stored != BlockType::F32;
                Candidate { stored: if follows { base } else { tensor.stored }, ..tensor }
            })
            .collect();
        let chosen =
            choice::choose(recipe.mix, self.facts(), recipe.importance.is_some(), &candidates);
        let named =
            |tensor: &Candidate<'_>, block| *recipe.named.get(tensor.name).unwrap_or(&block);
        candidates.iter().zip(chosen).map(|(tensor, block)| named(tensor, block)).collect()
    }

    /// Writes the file at `to`, which has that name only when it is whole.
    ///
    /// # Errors
    /// See [`ConvertError`]. Nothing is left behind.
    pub fn write(
        mut self,
        recipe: &Recipe<'_>,
        to: &Path,
        workers: &Workers,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<Written>, ConvertError> {
        if recipe.mix == Mix::Q2_K_S && recipe.importance.is_none() {
            return Err(ConvertError::NeedsImportance(recipe.mix));
        }
        let types = self.types(recipe);
        self.refuse_codes_again(&types, recipe.again)?;
        self.values.retain(|(key, _)| !key.starts_with("split."));
        self.set("general.quantization_version", GgufValue::U32(2));
        self.set("general.file_type", GgufValue::U32(recipe.mix.file_type()));
        if let Some((imatrix, file)) = recipe.importance {
            self.set("quantize.imatrix.file", text(file));
            let datasets = imatrix.datasets.join(", ");
            self.set("quantize.imatrix.dataset", text(&datasets));
            let entries = imatrix.names().count() as u32;
            self.set("quantize.imatrix.entries_count", GgufValue::U32(entries));
            self.set("quantize.imatrix.chunks_count", GgufValue::U32(imatrix.chunks));
        }
        write(&self, &types, recipe.importance.map(|(imatrix, _)| imatrix), to, workers, progress)
    }

    fn refuse_codes_again(&self, types: &[BlockType], again: Again) -> Result<(), ConvertError> {
        let becomes_other = |(tensor, to): &(&Planned, &BlockType)| {
            tensor.stored.is_quantised() && to.is_quantised() && tensor.stored != **to
        };
        match self.tensors.iter().zip(types).find(becomes_other) {
            Some((tensor, &to)) if again == Again::Refuse => {
                Err(ConvertError::Again { name: tensor.name.clone(), from: tensor.stored, to })
            }
            _ => Ok(()),
        }
    }
}
