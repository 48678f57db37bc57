//! Pictures at the command line: their files, and the tower that looks at them.

use std::path::{Path, PathBuf};

use clap::Args;
use lapidary_core::{KvKernels, Patches, TensorSource, TokenId, Value};
use lapidary_engine::{Engine, Soft};
use lapidary_format::{Source, open};
use lapidary_media::{Budget, Limits, decode, patches};
use lapidary_model::config::{Config, VisionConfig};
use lapidary_model::vision::Vision;
use lapidary_model::{Precision, load_vision};
use lapidary_text::{Tokenizer, make_room};

use crate::failure::Failure;
use crate::hub::locate;

/// How pictures are looked at.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SightArgs {
    /// Vision tower of a GGUF model [default: the GGUF file beside it with mmproj in its name].
    #[arg(long, value_name = "FILE")]
    pub(crate) mmproj: Option<PathBuf>,
    /// Most tokens that an image becomes, 70 to 1120 [default: the model's, else 280].
    #[arg(long, value_name = "N", value_parser = budget)]
    pub(crate) image_tokens: Option<Budget>,
}

fn budget(text: &str) -> Result<Budget, String> {
    let tokens = text.parse().map_err(|_| "that is no number of tokens".to_owned())?;
    Budget::new(tokens).map_err(|e| e.to_string())
}

/// A tower that was found, not loaded yet.
pub(crate) struct Eye {
    /// Where its weights are, if not with the model's.
    apart: Option<Source>,
    config: VisionConfig,
    /// The most soft tokens of a picture.
    pub(crate) budget: Budget,
}

/// What was found where a tower may be.
pub(crate) enum Found {
    /// The one to use.
    Eye(Box<Eye>),
    /// Nothing.
    Nothing,
    /// Several files beside the model, of which somebody must choose.
    Several(Vec<PathBuf>),
    /// One that nobody asked for and this engine does not know; the failure says why.
    Foreign(Failure),
}

impl Found {
    /// Looks into the file that was named, into the model itself, then beside it; `model` is as it was
    /// typed.
    pub(crate) fn of(
        model: Option<&Path>,
        source: &Source,
        args: &SightArgs,
    ) -> Result<Self, Failure> {
        if let Some(file) = &args.mmproj {
            return Ok(Self::Eye(Box::new(Eye::in_file(file, args)?)));
        }
        match read(source) {
            Ok(None) => {}
            Ok(Some(config)) => return Ok(Self::Eye(Box::new(Eye::new(None, config, args)?))),
            Err(foreign) => return Ok(Self::Foreign(foreign)),
        }
        let (Some(model), Source::Gguf(_)) = (model, source) else { return Ok(Self::Nothing) };
        let width = Config::read(source.meta()).map(|config| config.hidden).unwrap_or_default();
        let mut beside = beside(&locate(model)?, width);
        Ok(match beside.len() {
            0 => Self::Nothing,
            1 => match Eye::in_file(&beside.remove(0), args) {
                Ok(eye) => Self::Eye(Box::new(eye)),
                Err(foreign) => Self::Foreign(foreign),
            },
            _ => Self::Several(beside),
        })
    }

    /// The tower, or a sentence that says why there is none.
    pub(crate) fn needed(self, source: &Source) -> Result<Eye, Failure> {
        match self {
            Self::Eye(eye) => Ok(*eye),
            Self::Nothing => {
                let origin = source.origin();
                let message = format!(
                    "{origin} has no vision tower to look at images with; give its file with --mmproj, or leave out --image"
                );
                Err(Failure::usage("no_vision", message))
            }
            Self::Several(files) => Err(Failure::usage("mmproj", choice(&files))),
            Self::Foreign(failure) => Err(failure),
        }
    }

    /// The tower, if there is one to use; several, or one of another kind, are said aloud.
    pub(crate) fn if_any(self) -> Option<Eye> {
        match self {
            Self::Eye(eye) => Some(*eye),
            Self::Nothing => None,
            Self::Several(files) => {
                eprintln!("note: images are off: {}", choice(&files));
                None
            }
            Self::Foreign(failure) => {
                eprintln!("note: images are off: {failure}");
                None
            }
        }
    }
}

fn choice(files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    format!("several towers lie beside the model; choose one with --mmproj: {}", names.join(", "))
}

fn read(source: &dyn TensorSource) -> Result<Option<VisionConfig>, Failure> {
    let config = VisionConfig::read(source.meta());
    config.map_err(|e| Failure::work("vision", format!("{}: {e}", source.origin())))
}

/// The towers beside a model whose soft tokens are as wide as its stream.
fn beside(model: &Path, width: usize) -> Vec<PathBuf> {
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Ok(entries) = std::fs::read_dir(folder.unwrap_or_else(|| Path::new("."))) else {
        return vec![];
    };
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        name.contains("mmproj") && name.ends_with(".gguf")
    };
    let fits = |path: &PathBuf| {
        let Ok(source) = open(path) else { return false };
        let found = source.meta().get("clip.vision.projection_dim").and_then(Value::as_usize);
        found == Some(width)
    };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<_> = files.filter(|path| named(path) && fits(path)).collect();
    files.sort();
    files
}

impl Eye {
    fn new(apart: Option<Source>, config: VisionConfig, args: &SightArgs) -> Result<Self, Failure> {
        let own = config.budget.map(Budget::new).transpose();
        let own = own.map_err(|e| Failure::work("vision", e))?;
        let budget = args.image_tokens.or(own).unwrap_or_default();
        Ok(Self { apart, config, budget })
    }

    fn in_file(file: &Path, args: &SightArgs) -> Result<Self, Failure> {
        let source = open(file).map_err(|e| Failure::work("model_unreadable", e))?;
        let missing = || {
            let message = format!("{} holds no vision tower; give an mmproj file", file.display());
            Failure::usage("mmproj", message)
        };
        let config = read(&source)?.ok_or_else(missing)?;
        Self::new(Some(source), config, args)
    }

    /// Brings the tower of a model onto a device; `width` is that of the model's stream.
    pub(crate) fn load<B: KvKernels>(
        &self,
        ops: &B,
        model: &Source,
        width: usize,
    ) -> Result<Vision<B>, Failure> {
        let source: &dyn TensorSource = self.apart.as_ref().unwrap_or(model);
        let loaded = load_vision(ops, source, &self.config, Precision::AsStored, &mut |_, _| {});
        let tower = loaded.map_err(|e| Failure::work("model_unreadable", e))?;
        if tower.output != width {
            let (origin, found) = (source.origin(), tower.output);
            let message = format!(
                "{origin} makes soft tokens {found} wide and the model reads {width}; give the mmproj file of this model"
            );
            return Err(Failure::work("mmproj", message));
        }
        Ok(tower)
    }

    /// Reads picture files as the tower does.
    pub(crate) fn pictures(&self, files: &[PathBuf]) -> Result<Vec<Patches>, Failure> {
        let picture = |file: &PathBuf| {
            let failed = |e: &dyn std::fmt::Display| {
                Failure::work("image", format!("{}: {e}", file.display()))
            };
            let limits = Limits::default();
            let size = std::fs::metadata(file).map_err(|e| failed(&e))?.len();
            if size > limits.bytes as u64 {
                let too_large =
                    lapidary_media::ImageError::Bytes { bytes: size as usize, most: limits.bytes };
                return Err(failed(&too_large));
            }
            let bytes = std::fs::read(file).map_err(|e| failed(&e))?;
            let pixels = decode(&bytes, &limits).map_err(|e| failed(&e))?;
            Ok(patches(&pixels, self.budget))
        };
        files.iter().map(picture).collect()
    }
}

/// Makes room for pictures in a prompt, and has the engine look at them.
pub(crate) fn place(
    pictures: Vec<Patches>,
    prompt: Vec<TokenId>,
    engine: &Engine,
    tokenizer: &Tokenizer,
) -> Result<(Vec<TokenId>, Vec<Soft>), Failure> {
    if pictures.is_empty() {
        return Ok((prompt, Vec::new()));
    }
    let look = |picture| engine.look(picture).map_err(|e| Failure::work("image", e));
    let rows = pictures.into_iter().map(look).collect::<Result<Vec<_>, _>>()?;
    let counts: Vec<_> = rows.iter().map(|rows| rows.count()).collect();
    let roomy = make_room(&prompt, tokenizer.specials(), &counts);
    let roomy = roomy.map_err(|e| Failure::usage("image", e))?;
    let soft = roomy.places.into_iter().zip(rows);
    let soft = soft.map(|(range, rows)| Soft { range, rows: rows.into() }).collect();
    Ok((roomy.tokens, soft))
}
