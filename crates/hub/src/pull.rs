//! From a name to files on the disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::Cache;
use crate::choose::{Choice, Kind};
use crate::client::{Client, Options};
use crate::error::PullError;
use crate::fetch::Fetch;
use crate::name::HubName;
use crate::part::Part;
use crate::repository::{Remote, describe, list};

/// What happens during a pull, file by file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event<'a> {
    /// Another process fetches this file; it is waited for.
    Waiting {
        /// Path inside the repository.
        file: &'a str,
    },
    /// So much of a file is here. The first of a file's events counts what was here before.
    Got {
        /// Path inside the repository.
        file: &'a str,
        /// Bytes.
        bytes: u64,
        /// Bytes of the whole file.
        total: u64,
    },
}

/// A model in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pulled {
    /// What to open: a GGUF file, the first part of one, or a folder.
    pub model: PathBuf,
    /// The vision tower, if it lies in a file of its own.
    pub mmproj: Option<PathBuf>,
    /// Everything that belongs to it.
    pub files: Vec<PathBuf>,
}

impl Pulled {
    /// A choice's files in a snapshot.
    pub(crate) fn new(snapshot: &Path, choice: &Choice) -> Self {
        let model = match (choice.kind, choice.files.first()) {
            (Kind::Gguf, Some(first)) => snapshot.join(first),
            _ => snapshot.to_owned(),
        };
        let mmproj = choice.mmproj.as_ref().map(|mmproj| snapshot.join(mmproj));
        Self { model, mmproj, files: choice.all().map(|file| snapshot.join(file)).collect() }
    }
}

/// A hub, and the cache that its models go to.
pub struct Hub {
    client: Client,
    cache: Cache,
    connections: usize,
    piece: u64,
}

impl Hub {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// If the hub's or the proxy's address is none.
    pub fn new(options: &Options, cache: Cache) -> Result<Self, PullError> {
        let client = Client::new(options)?;
        Ok(Self { client, cache, connections: options.connections, piece: options.piece.max(1) })
    }

    /// Fetches what a name means, as far as it is not here. `watch` may be called by several
    /// threads.
    ///
    /// # Errors
    /// If any of its files cannot be had, whole and as published. Those that are here stay, and so
    /// does the beginning of the one that failed.
    pub fn pull(
        &self,
        name: &HubName,
        watch: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<Pulled, PullError> {
        let listing = list(&self.client, &name.repo, &name.revision)?;
        let choice = Choice::of(&listing.files, name.quant.as_deref());
        let choice =
            choice.map_err(|source| PullError::Choose { repo: name.repo.to_string(), source })?;
        for file in choice.all() {
            let remote = describe(&self.client, &name.repo, &listing.commit, file)?;
            self.file(name, &remote, watch)?;
            self.cache.link(&name.repo, &listing.commit, file, &remote.etag)?;
        }
        self.cache.refer(&name.repo, &name.revision, &listing.commit)?;
        Ok(Pulled::new(&self.cache.snapshot(&name.repo, &listing.commit), &choice))
    }

    /// Puts one file's bytes into the cache, unless they are there.
    fn file(
        &self,
        name: &HubName,
        remote: &Remote,
        watch: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<(), PullError> {
        let (file, total) = (&*remote.path, remote.bytes);
        let waiting = || watch(Event::Waiting { file });
        let _lock = self.cache.lock(&name.repo, &remote.etag, waiting)?;
        let blob = self.cache.blob(&name.repo, &remote.etag);
        if blob.metadata().is_ok_and(|found| found.len() == total) {
            watch(Event::Got { file, bytes: total, total });
            return Ok(());
        }
        match self.fetch(name, remote, &blob, watch)? {
            Outcome::Whole => Ok(()),
            // What an earlier run left may have been damaged; all of it is new this time.
            Outcome::Stale => self.fetch(name, remote, &blob, watch).map(|_| ()),
        }
    }

    /// Fetches what an earlier run has not left here.
    fn fetch(
        &self,
        name: &HubName,
        remote: &Remote,
        blob: &Path,
        watch: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<Outcome, PullError> {
        let (file, total, repo) = (&*remote.path, remote.bytes, name.repo.to_string());
        let here = AtomicU64::new(0);
        let arrived = |bytes| {
            let bytes = here.fetch_add(bytes, Ordering::Relaxed) + bytes;
            watch(Event::Got { file, bytes, total });
        };
        let fetch = Fetch { client: &self.client, repo: &repo, remote, arrived: &arrived };
        let in_pieces = total > self.piece && fetch.has_ranges()?;
        let piece = if in_pieces { self.piece } else { total.max(1) };
        let part = Part::open(&blob.with_extension("part"), total, piece)?;
        let before = part.bytes();
        arrived(before);
        fetch.all(&part, if in_pieces { self.connections } else { 1 })?;
        match publish(part, remote, blob) {
            Err(PullError::Damaged { .. }) if before > 0 => Ok(Outcome::Stale),
            other => other.map(|()| Outcome::Whole),
        }
    }
}

/// How a file came out.
enum Outcome {
    /// It is in its place.
    Whole,
    /// It was damaged, and parts of it were old; everything has been thrown away.
    Stale,
}

/// Compares all bytes with the published checksum, and only then gives them their name.
fn publish(part: Part, remote: &Remote, blob: &Path) -> Result<(), PullError> {
    if let Some(expected) = &remote.sha256 {
        let found = part.sha256().map_err(PullError::at(blob))?;
        if found != *expected {
            part.discard();
            let (file, expected) = (remote.path.clone(), expected.clone());
            return Err(PullError::Damaged { file, expected, found });
        }
    }
    part.publish(blob).map_err(PullError::at(blob))
}
