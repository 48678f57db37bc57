//! Pebble's stored conversations about pictures, and its vision tower.

use std::path::{Path, PathBuf};

use lapidary_core::{KvKernels, Patches, TensorSource, TokenId};
use lapidary_media::{Budget, Limits, decode, patches};
use lapidary_model::config::VisionConfig;
use lapidary_model::vision::Vision;
use lapidary_model::{Precision, load_vision};
use serde_json::Value;

use crate::shared;

/// Pictures, and questions about them that were each asked alone.
pub struct PictureCase {
    /// Names the case's golden tensors.
    pub index: u64,
    /// The pictures' files, in the order of their placeholders.
    pub files: Vec<PathBuf>,
    /// The most soft tokens of a picture.
    pub budget: Budget,
    /// How many soft tokens each became.
    pub soft_tokens: Vec<usize>,
    /// Whether tensors of the first question are stored.
    pub has_tensors: bool,
    /// The questions.
    pub turns: Vec<PictureTurn>,
}

/// A question and its stored answer.
pub struct PictureTurn {
    /// The question alone.
    pub question: String,
    /// The prompt with one placeholder a picture.
    pub prompt: String,
    /// The prompt with a placeholder for each soft token.
    pub tokens: Vec<TokenId>,
    /// The greedy answer, its end token included.
    pub greedy: Vec<TokenId>,
}

/// All stored cases; none, having said so, where they are absent.
///
/// # Panics
/// If they cannot be read.
pub fn picture_cases() -> Vec<PictureCase> {
    let Some(path) = shared("pebble/golden/images.jsonl") else { return Vec::new() };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let folder = path.parent().expect("a file lies in a folder");
    text.lines().map(|line| PictureCase::read(folder, line)).collect()
}

/// Pebble's tower from a folder or a file, at full precision.
///
/// # Panics
/// If it cannot be loaded.
pub fn tower<B: KvKernels>(ops: &B, path: &Path) -> Vision<B> {
    let source = lapidary_format::open(path).unwrap_or_else(|e| panic!("{e}"));
    let config = VisionConfig::read(source.meta()).unwrap_or_else(|e| panic!("{e}"));
    let config = config.expect("the model has a tower");
    let loaded = load_vision(ops, &source, &config, Precision::F32, &mut |_, _| {});
    loaded.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

impl PictureCase {
    fn read(folder: &Path, line: &str) -> Self {
        let case: Value = serde_json::from_str(line).expect("a case is JSON");
        let list = |key: &str| case[key].as_array().expect("a list").clone();
        let number = |value: &Value| value.as_u64().expect("a count");
        let tokens = |ids: &Value| {
            let ids = ids.as_array().expect("a list").iter();
            ids.map(|id| TokenId(number(id) as u32)).collect()
        };
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let turn = |turn: Value| PictureTurn {
            question: text(&turn["question"]),
            prompt: text(&turn["prompt"]),
            tokens: tokens(&turn["prompt_ids"]),
            greedy: tokens(&turn["greedy_ids"]),
        };
        Self {
            index: number(&case["index"]),
            files: list("files").iter().map(|file| folder.join(text(file))).collect(),
            budget: Budget::new(number(&case["budget"]) as usize).expect("a budget in range"),
            soft_tokens: list("soft_tokens").iter().map(|n| number(n) as usize).collect(),
            has_tensors: case["golden_tensors"] == Value::Bool(true),
            turns: list("turns").into_iter().map(turn).collect(),
        }
    }

    /// The pictures as a tower reads them.
    ///
    /// # Panics
    /// If one cannot be decoded.
    pub fn pictures(&self) -> Vec<Patches> {
        let picture = |file: &PathBuf| {
            let bytes = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let pixels = decode(&bytes, &Limits::default());
            patches(&pixels.unwrap_or_else(|e| panic!("{}: {e}", file.display())), self.budget)
        };
        self.files.iter().map(picture).collect()
    }
}
