//! Guessing ahead: from options to a drafter.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use lapidary_cache::{Extent, KvSpec};
use lapidary_core::{Backend, KvKernels, TensorSource};
use lapidary_engine::{
    AssistantDrafter, Drafter, Drafting, NgramDrafter, NoDrafts, SmallModelDrafter,
};
use lapidary_model::config::{AssistantConfig, Config};
use lapidary_model::{Precision, load_assistant};

use crate::engine::{cache, load_model};
use crate::failure::Failure;
use crate::model::find;

/// How many of a text's last tokens are looked up in it, unless said otherwise.
const NGRAM: usize = 3;
/// The most guesses in a row, unless said otherwise.
const LENGTH: usize = 4;

/// Who guesses, as it is typed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum DraftName {
    #[default]
    None,
    Ngram(usize),
    Model(PathBuf),
}

/// A draft tree's shape, as it is typed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TreeShape {
    width: usize,
    depth: usize,
}

/// Guessing ahead. It changes how fast a text comes, never what it is.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DraftArgs {
    /// Guess tokens ahead and check several at once: from the text itself (ngram, or ngram:N to
    /// compare the last N tokens), by the model's own drafter, or by a small model of the same
    /// vocabulary.
    #[arg(long, value_name = "none|ngram[:N]|PATH", default_value = "none")]
    pub(crate) draft: DraftName,
    /// Most guesses in a row; fewer are made where they do not pay [default: 4].
    #[arg(long, value_name = "N", conflicts_with = "draft_tree")]
    pub(crate) draft_len: Option<usize>,
    /// Guess a tree: the W best continuations at each of D depths. Needs the model's own drafter.
    #[arg(long, value_name = "WxD")]
    pub(crate) draft_tree: Option<TreeShape>,
}

impl FromStr for DraftName {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let n = s.strip_prefix("ngram").map(|rest| match rest.strip_prefix(':') {
            Some(n) => n.parse().ok().filter(|n| (1..=64).contains(n)),
            None => rest.is_empty().then_some(NGRAM),
        });
        match (s, n) {
            ("none", _) => Ok(Self::None),
            (_, Some(Some(n))) => Ok(Self::Ngram(n)),
            (_, Some(None)) if s.starts_with("ngram:") => {
                Err(format!("`{s}` compares no number of tokens from 1 to 64; use ngram:N"))
            }
            _ => Ok(Self::Model(PathBuf::from(s))),
        }
    }
}

impl FromStr for TreeShape {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let side = |n: &str| n.parse().ok().filter(|n| (1..=16).contains(n));
        let sides = s.split_once('x').and_then(|(w, d)| Some((side(w)?, side(d)?)));
        let wrong = || format!("`{s}` is no tree; use WxD with both from 1 to 16, such as 2x4");
        sides.map(|(width, depth)| Self { width, depth }).ok_or_else(wrong)
    }
}

impl DraftArgs {
    /// How much is guessed.
    pub(crate) fn drafting(&self) -> Drafting {
        let most = match (&self.draft, self.draft_tree) {
            (DraftName::None, _) => 0,
            (_, Some(tree)) => tree.depth,
            (_, None) => self.draft_len.unwrap_or(LENGTH),
        };
        let width = self.draft_tree.map_or(1, |tree| tree.width);
        Drafting { most, width, adaptive: true }
    }

    /// Refuses settings that would have no effect.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match (&self.draft, self.draft_len, self.draft_tree) {
            (DraftName::None, Some(_), _) | (DraftName::None, _, Some(_)) => {
                let message = "--draft-len and --draft-tree need --draft: say who guesses";
                Err(Failure::usage("draft", message))
            }
            (DraftName::Ngram(_), _, Some(_)) => {
                let message = "an n-gram drafter makes chains; --draft-tree needs --draft PATH";
                Err(Failure::usage("draft", message))
            }
            _ => Ok(()),
        }
    }

    /// The drafter, ready on the target's device.
    pub(crate) fn drafter<B: KvKernels>(
        &self,
        ops: &B,
        target: &Config,
        extent: Extent,
    ) -> Result<Box<dyn Drafter<B>>, Failure> {
        match &self.draft {
            DraftName::None => Ok(Box::new(NoDrafts)),
            DraftName::Ngram(longest) => Ok(Box::new(NgramDrafter::new(*longest))),
            DraftName::Model(path) => self.model(path, ops, target, extent),
        }
    }

    fn model<B: KvKernels>(
        &self,
        path: &Path,
        ops: &B,
        target: &Config,
        extent: Extent,
    ) -> Result<Box<dyn Drafter<B>>, Failure> {
        let source = find(Some(path))?;
        if AssistantConfig::describes(source.meta()) {
            return assistant(ops, &source, target);
        }
        if self.draft_tree.is_some() {
            let message = "a small model makes chains; --draft-tree needs the model's own drafter";
            return Err(Failure::usage("draft", message));
        }
        let model = load_model(ops, &source, Precision::AsStored)?;
        if model.vocab != target.vocab {
            let message = format!(
                "the drafter {} has {} tokens and the model {}: give one of the same vocabulary",
                path.display(),
                model.vocab,
                target.vocab
            );
            return Err(Failure::work("draft", message));
        }
        let cache = cache(ops, &model, &KvSpec::default(), extent)?;
        let (slots, burst) = (extent.slots, extent.burst as usize);
        Ok(Box::new(SmallModelDrafter::new(Box::new(model), Box::new(cache), slots, burst)))
    }
}

/// The drafter that was trained for the target.
pub(crate) fn assistant<B: Backend>(
    ops: &B,
    source: &dyn TensorSource,
    target: &Config,
) -> Result<Box<dyn Drafter<B>>, Failure> {
    let drafter = load_assistant(ops, source, target, Precision::AsStored, &mut |_, _| {});
    let drafter = drafter.map_err(|e| Failure::work("draft", e))?;
    Ok(Box::new(AssistantDrafter::new(drafter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafters_are_read_as_they_are_typed() {
        assert_eq!("none".parse(), Ok(DraftName::None));
        assert_eq!("ngram".parse(), Ok(DraftName::Ngram(NGRAM)));
        assert_eq!("ngram:5".parse(), Ok(DraftName::Ngram(5)));
        assert_eq!("some/drafter.gguf".parse(), Ok(DraftName::Model("some/drafter.gguf".into())));
        assert_eq!("ngrams.gguf".parse(), Ok(DraftName::Model("ngrams.gguf".into())));
        assert!("ngram:0".parse::<DraftName>().is_err());
        assert!("ngram:x".parse::<DraftName>().is_err());
    }

    #[test]
    fn trees_are_read_as_they_are_typed() {
        assert_eq!("2x4".parse(), Ok(TreeShape { width: 2, depth: 4 }));
        for wrong in ["", "2", "x", "0x4", "2x0", "2x17", "2X4", "2x4x1"] {
            assert!(wrong.parse::<TreeShape>().is_err(), "{wrong}");
        }
    }
}
