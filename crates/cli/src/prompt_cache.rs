//! `--prompt-cache`: where prefixes are kept beyond their slots.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use lapidary_cache::KvSpec;
use lapidary_core::{KvKernels, Section, TensorSource};
use lapidary_engine::{Budget, HostShelf, Label, Prefixes, Scheduler, SectionKey, Shelf};
use lapidary_format::{SavedFileError, SavedFolder, SavedHead, digest, fingerprint};

use crate::failure::Failure;

/// Every so many tokens of a prompt its entries are saved: as often as a window of the family's
/// models is passed, so that no more than that is read again.
const CHECKPOINT: u32 = 1024;
/// Fewer tokens than this are read faster than they are found.
const LEAST: u32 = 16;
/// What a folder may take unless something else is said.
const FOLDER_MIB: u64 = 4096;
/// A file that nobody has touched for so long will not be finished.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What is kept of prompts and texts for later ones that begin the same.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PromptCacheArgs {
    /// Keep what prompts left in the cache in this folder, and begin there the next time.
    #[arg(long, value_name = "DIR")]
    pub(crate) prompt_cache: Option<PathBuf>,
    /// Most that it may take; without a folder, kept in memory [default: 4096 in a folder, else
    /// nothing].
    #[arg(long, value_name = "MIB")]
    pub(crate) prompt_cache_mib: Option<u64>,
}

impl PromptCacheArgs {
    /// Whether anything is to be kept.
    fn keeps(&self) -> bool {
        self.prompt_cache.is_some() || self.prompt_cache_mib.is_some_and(|mib| mib > 0)
    }

    /// A scheduler that saves what is to be kept.
    pub(crate) fn apply(&self, scheduler: Scheduler) -> Scheduler {
        if self.keeps() { scheduler.saving(CHECKPOINT) } else { scheduler }
    }

    /// The place for it, and what lies there for this model and cache.
    pub(crate) fn prefixes<B: KvKernels>(
        &self,
        ops: &B,
        source: &dyn TensorSource,
        kv: &KvSpec,
    ) -> Result<Prefixes, Failure> {
        if !self.keeps() {
            return Ok(Prefixes::none());
        }
        let Some(transport) = ops.transport() else {
            let name = ops.name();
            let message = format!("{name} cannot hand out cache entries; leave --prompt-cache out");
            return Err(Failure::usage("prompt_cache", message));
        };
        let mib = self.prompt_cache_mib.unwrap_or(FOLDER_MIB);
        let budget = Budget { bytes: mib.saturating_mul(1 << 20), least: LEAST };
        let Some(folder) = &self.prompt_cache else {
            return Ok(Prefixes::new(Box::new(HostShelf::default()), budget));
        };
        let unusable = |e: &dyn std::fmt::Display| {
            Failure::work("prompt_cache", format!("{}: {e}", folder.display()))
        };
        let model = fingerprint(source).map_err(|e| unusable(&e))?;
        let binding = digest(format!("{model:x} {kv} {}", transport.layout()).as_bytes());
        let abandoned = SystemTime::now() - ABANDONED;
        let folder = SavedFolder::open(folder, binding, abandoned).map_err(|e| unusable(&e))?;
        Ok(Prefixes::new(Box::new(FolderShelf { folder, complained: false }), budget))
    }
}

/// A folder as the engine's shelf. What goes wrong there costs time, never an answer: it is said
/// on standard error.
struct FolderShelf {
    folder: SavedFolder,
    /// Whether it was said that nothing can be written.
    complained: bool,
}

impl Shelf for FolderShelf {
    fn labels(&mut self) -> Vec<Label> {
        let found = match self.folder.look() {
            Ok(found) => found,
            Err(error) => {
                eprintln!("warning: saved prompts cannot be listed: {error}");
                return Vec::new();
            }
        };
        for (path, error) in &found.damaged {
            eprintln!("warning: {} is ignored: {error}", path.display());
        }
        if found.foreign > 0 {
            let files = found.foreign;
            eprintln!("warning: {files} saved prompts of other models or --kv are ignored");
        }
        found.heads.into_iter().map(label).collect()
    }

    fn put(&mut self, label: &Label, section: Section) -> bool {
        let written = self.folder.put(&head(label), &section);
        if let Err(error) = &written
            && !self.complained
        {
            self.complained = true;
            eprintln!("warning: prompts are not saved: {error}");
        }
        written.is_ok()
    }

    fn get(&mut self, key: SectionKey) -> Option<Arc<Section>> {
        match self.folder.get(key.0, SystemTime::now()) {
            Ok(section) => Some(Arc::new(section)),
            // Another process has made room.
            Err(SavedFileError::Read(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                None
            }
            Err(error) => {
                eprintln!("warning: {} is ignored: {error}", self.folder.path(key.0).display());
                None
            }
        }
    }

    fn remove(&mut self, key: SectionKey) {
        self.folder.remove(key.0);
    }
}

fn head(label: &Label) -> SavedHead {
    let Label { key, parent, tokens, from, floor, bytes } = label.clone();
    SavedHead { key: key.0, parent: parent.map(|key| key.0), tokens, from, floor, bytes }
}

fn label(head: SavedHead) -> Label {
    let SavedHead { key, parent, tokens, from, floor, bytes } = head;
    Label { key: SectionKey(key), parent: parent.map(SectionKey), tokens, from, floor, bytes }
}
