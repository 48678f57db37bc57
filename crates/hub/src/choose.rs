//! Which files of a repository are meant.
//!
//! A quantisation is what stands last in a GGUF file's name, as in `gemma-it-UD-Q4_K_XL.gguf`.
//! A file in parts is one file.

use std::collections::BTreeMap;

use crate::error::ChooseError;

/// What a model consists of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// GGUF files, or a folder's.
    pub kind: Kind,
    /// Paths inside the repository: the parts in their order, or all files of a folder.
    pub files: Vec<String>,
    /// The vision tower that belongs to it, in a file of its own.
    pub mmproj: Option<String>,
}

/// How a model is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// One GGUF file, perhaps in parts.
    Gguf,
    /// A folder of safetensors with its configuration.
    Folder,
}

/// What is taken where nothing is asked for.
const USUAL: &str = "Q4_K_M";
/// Of several towers, the first of these.
const TOWERS: [&str; 3] = ["F16", "BF16", "F32"];
/// Files beside the weights that a folder needs.
const BESIDE: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "preprocessor_config.json",
    "processor_config.json",
    "chat_template.jinja",
];

impl Choice {
    /// Everything to fetch.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.files.iter().chain(&self.mmproj).map(String::as_str)
    }

    /// The files that `quant` means: a quantisation in either case, a file's whole path, or where
    /// there is none Q4_K_M, the only GGUF file, or the folder.
    ///
    /// # Errors
    /// Where nothing or several things could be meant, with what there is.
    pub fn of(files: &[String], quant: Option<&str>) -> Result<Self, ChooseError> {
        let models = models(files);
        let chosen = match quant {
            Some(quant) => Some(asked(&models, quant)?),
            None if models.is_empty() => None,
            None => Some(unasked(&models)?),
        };
        match chosen {
            Some(model) => {
                let mmproj = tower(files, model.label());
                Ok(Self { kind: Kind::Gguf, files: model.complete()?, mmproj })
            }
            None => folder(files),
        }
    }
}

/// A GGUF file of weights, perhaps in parts.
#[derive(Debug)]
struct Model<'a> {
    /// Path without part and extension.
    stem: &'a str,
    /// How many parts it has.
    of: usize,
    /// Number of the part and path.
    parts: BTreeMap<usize, &'a str>,
}

impl Model<'_> {
    fn label(&self) -> &str {
        stem_label(self.stem)
    }

    fn complete(&self) -> Result<Vec<String>, ChooseError> {
        let files: Vec<_> = self.parts.values().map(|file| (*file).to_owned()).collect();
        if files.len() == self.of {
            return Ok(files);
        }
        let file = files.first().cloned().unwrap_or_default();
        Err(ChooseError::Parts { file, of: self.of, found: files.len() })
    }

    /// How exactly a quantisation means this file, 0 being exact.
    fn distance(&self, quant: &str) -> Option<usize> {
        let (stem, quant) = (self.stem.to_ascii_lowercase(), quant.to_ascii_lowercase());
        let edge = |c: char| "-./".contains(c);
        let ends =
            stem.strip_suffix(&quant).is_some_and(|rest| rest.is_empty() || rest.ends_with(edge));
        let within = || {
            stem.match_indices(&quant).any(|(at, _)| {
                let (before, after) = (&stem[..at], &stem[at + quant.len()..]);
                before.ends_with(edge) && after.starts_with(edge)
            })
        };
        let is_file = self.parts.values().any(|file| file.eq_ignore_ascii_case(&quant));
        if is_file || self.label().eq_ignore_ascii_case(&quant) {
            Some(0)
        } else if ends {
            Some(1)
        } else {
            within().then_some(2)
        }
    }
}

/// The weights among files, by stem.
fn models(files: &[String]) -> Vec<Model<'_>> {
    let mut found: BTreeMap<(&str, usize), Model<'_>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_weights(file)) {
        let (stem, part, of) = split(&file[..file.len() - ".gguf".len()]);
        let empty = Model { stem, of, parts: BTreeMap::new() };
        found.entry((stem, of)).or_insert(empty).parts.insert(part, file);
    }
    found.into_values().collect()
}

fn is_gguf(file: &str) -> bool {
    let at = file.len().saturating_sub(".gguf".len());
    file.is_char_boundary(at) && file[at..].eq_ignore_ascii_case(".gguf")
}

fn base(file: &str) -> String {
    file.rsplit('/').next().unwrap_or(file).to_ascii_lowercase()
}

fn is_weights(file: &str) -> bool {
    let base = base(file);
    is_gguf(file) && !base.contains("mmproj") && !base.contains("imatrix")
}

/// Stem, part and number of parts, from `stem-00002-of-00003`.
fn split(name: &str) -> (&str, usize, usize) {
    let number = |digits: &str| {
        let digital = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digital.then(|| digits.parse().ok()).flatten()
    };
    let parts = name.rsplit_once("-of-").and_then(|(rest, of)| {
        let (stem, part) = rest.rsplit_once('-')?;
        Some((stem, number(part)?, number(of)?))
    });
    match parts {
        Some((stem, part, of)) if (1..=of).contains(&part) => (stem, part, of),
        _ => (name, 1, 1),
    }
}

/// The quantisation that a GGUF file's name ends with, such as `Q4_K_M` or `UD-Q4_K_XL`; for a
/// vision tower `mmproj` and its type; the name itself where it ends with none.
pub fn label(file: &str) -> String {
    let stem = if is_gguf(file) { &file[..file.len() - ".gguf".len()] } else { file };
    let label = stem_label(split(stem).0);
    if base(file).contains("mmproj") { format!("mmproj {label}") } else { label.to_owned() }
}

fn stem_label(stem: &str) -> &str {
    let name = stem.rsplit('/').next().unwrap_or(stem);
    let Some((rest, last)) = name.rsplit_once(['-', '.']) else { return name };
    if !is_quant(last) {
        return name;
    }
    match rest.rsplit(['-', '.']).next() {
        Some(made) if made.eq_ignore_ascii_case("UD") => &name[name.len() - last.len() - 3..],
        _ => last,
    }
}

/// Whether a word is how quantisations are called: `Q4_K_M`, `IQ4_XS`, `TQ1_0`, `BF16`, `MXFP4`.
fn is_quant(word: &str) -> bool {
    let upper = word.to_ascii_uppercase();
    let rest =
        ["IQ", "TQ", "Q", "BF", "F", "MXFP", "NVFP"].iter().find_map(|p| upper.strip_prefix(p));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn asked<'a, 'b>(models: &'b [Model<'a>], quant: &str) -> Result<&'b Model<'a>, ChooseError> {
    let nearest = models.iter().filter_map(|model| model.distance(quant)).min();
    let is_near = |model: &&Model<'_>| nearest.is_some() && model.distance(quant) == nearest;
    let near: Vec<_> = models.iter().filter(is_near).collect();
    match near[..] {
        [model] => Ok(model),
        [] if models.is_empty() => Err(ChooseError::NoModel),
        [] => Err(ChooseError::Unknown { quant: quant.to_owned(), there: labels(models) }),
        _ => Err(ChooseError::Several { there: near.iter().map(|model| path(model)).collect() }),
    }
}

fn unasked<'a, 'b>(models: &'b [Model<'a>]) -> Result<&'b Model<'a>, ChooseError> {
    match models {
        [model] => Ok(model),
        _ => match asked(models, USUAL) {
            Err(ChooseError::Unknown { there, .. }) => Err(ChooseError::Several { there }),
            other => other,
        },
    }
}

fn path(model: &Model<'_>) -> String {
    model.parts.values().next().map_or_else(String::new, |file| (*file).to_owned())
}

fn labels(models: &[Model<'_>]) -> Vec<String> {
    let mut labels: Vec<_> = models.iter().map(|model| model.label().to_owned()).collect();
    labels.sort();
    labels.dedup();
    labels
}

/// The tower of the same quantisation, else the most exact that is small.
fn tower(files: &[String], quant: &str) -> Option<String> {
    let towers = || files.iter().filter(|file| is_gguf(file) && base(file).contains("mmproj"));
    let called = |wanted: &str| {
        let wanted = format!("mmproj {wanted}");
        towers().find(|file| label(file).eq_ignore_ascii_case(&wanted))
    };
    let wanted = [quant].into_iter().chain(TOWERS);
    wanted.into_iter().find_map(called).or_else(|| towers().next()).cloned()
}

/// A folder at the repository's root.
fn folder(files: &[String]) -> Result<Choice, ChooseError> {
    let weights: Vec<_> = files.iter().filter(|file| file.ends_with(".safetensors")).collect();
    let at_root: Vec<_> = weights.into_iter().filter(|file| !file.contains('/')).collect();
    let has_config = files.iter().any(|file| file == "config.json");
    if at_root.is_empty() || !has_config {
        return Err(ChooseError::NoModel);
    }
    let mut shards: BTreeMap<(&str, usize), Vec<&str>> = BTreeMap::new();
    for file in &at_root {
        let (stem, _, of) = split(file.trim_end_matches(".safetensors"));
        shards.entry((stem, of)).or_default().push(file);
    }
    for ((_, of), found) in shards {
        if found.len() != of {
            return Err(ChooseError::Parts { file: found[0].to_owned(), of, found: found.len() });
        }
    }
    let beside = |file: &&String| {
        BESIDE.contains(&&***file)
            || (file.ends_with(".safetensors.index.json") && !file.contains('/'))
    };
    let files = files.iter().filter(beside).chain(at_root).cloned().collect();
    Ok(Choice { kind: Kind::Folder, files, mmproj: None })
}
