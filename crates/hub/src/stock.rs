//! What a cache holds, and taking things out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, files};
use crate::choose::Choice;
use crate::error::{ChooseError, PullError};
use crate::name::{HubName, RepoId};

/// A repository in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// The repository.
    pub repo: RepoId,
    /// Files of all its snapshots, the latest of each path, in order.
    pub files: Vec<StoredFile>,
    /// Bytes of files that are not whole yet.
    pub unfinished: u64,
}

/// A file in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredFile {
    /// Path inside the repository.
    pub path: String,
    /// Where it lies.
    pub at: PathBuf,
    /// Bytes.
    pub bytes: u64,
}

/// What was taken out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Removed {
    /// Paths inside the repository.
    pub files: Vec<String>,
    /// Bytes that the disk has again.
    pub freed: u64,
}

impl Cache {
    /// Everything that is here, by name. A cache that does not exist holds nothing.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn stock(&self) -> Result<Vec<Stored>, PullError> {
        let entries = match fs::read_dir(self.root()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(PullError::at(self.root()))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut repos: Vec<_> = names.filter_map(|name| RepoId::of_folder(&name)).collect();
        repos.sort();
        Ok(repos.into_iter().map(|repo| self.stored(repo)).collect())
    }

    fn stored(&self, repo: RepoId) -> Stored {
        let mut found = BTreeMap::new();
        for snapshot in self.snapshots(&repo) {
            for path in files(&snapshot) {
                let at = snapshot.join(&path);
                let bytes = at.metadata().map_or(0, |meta| meta.len());
                found.insert(path.clone(), StoredFile { path, at, bytes });
            }
        }
        let unfinished = blobs(self, &repo).into_iter().filter(|(path, _)| !is_blob(path));
        let unfinished = unfinished.map(|(_, bytes)| bytes).sum();
        Stored { repo, files: found.into_values().collect(), unfinished }
    }

    /// The commits of which something is here, the one that `main` is last.
    fn snapshots(&self, repo: &RepoId) -> Vec<PathBuf> {
        let folder = self.repository(repo).join("snapshots");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<_> =
            entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        let main = fs::read_to_string(self.repository(repo).join("refs/main")).unwrap_or_default();
        found.sort_by_key(|path| (path.ends_with(main.trim()), path.clone()));
        found
    }

    /// Takes a repository out, or those of its files that a quantisation means.
    ///
    /// # Errors
    /// If nothing of that name is here, or the disk refuses.
    pub fn remove(&self, name: &HubName) -> Result<Removed, PullError> {
        let stored = self.stored(name.repo.clone());
        let Some(quant) = &name.quant else { return self.remove_all(stored) };
        let paths: Vec<_> = stored.files.iter().map(|file| file.path.clone()).collect();
        let choice = Choice::of(&paths, Some(quant)).map_err(|source| nothing(name, source))?;
        for snapshot in self.snapshots(&name.repo) {
            for file in &choice.files {
                remove_file(&snapshot.join(file))?;
            }
        }
        let freed = self.sweep(&name.repo)?;
        let rest = self.stored(name.repo.clone()).files;
        let is_tower = |file: &StoredFile| file.path.to_ascii_lowercase().contains("mmproj");
        if rest.iter().any(|file| !is_tower(file)) {
            return Ok(Removed { files: choice.files, freed });
        }
        let last = self.remove_all(self.stored(name.repo.clone()))?;
        let files = [choice.files, last.files].concat();
        Ok(Removed { files, freed: freed + last.freed })
    }

    fn remove_all(&self, stored: Stored) -> Result<Removed, PullError> {
        let folder = self.repository(&stored.repo);
        if !folder.is_dir() {
            let name = HubName { repo: stored.repo, revision: "main".into(), quant: None };
            return Err(nothing(&name, ChooseError::NoModel));
        }
        let freed = blobs(self, &stored.repo).values().sum();
        fs::remove_dir_all(&folder).map_err(PullError::at(folder))?;
        match fs::remove_dir_all(self.locks(&stored.repo)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(PullError::at(self.locks(&stored.repo))(error))
            }
            _ => Ok(Removed {
                files: stored.files.into_iter().map(|file| file.path).collect(),
                freed,
            }),
        }
    }

    /// Removes the blobs that no snapshot names, and says how many bytes they had.
    fn sweep(&self, repo: &RepoId) -> Result<u64, PullError> {
        let snapshots = self.snapshots(repo);
        let named = |snapshot: &PathBuf| {
            let blob = |path: &String| fs::canonicalize(snapshot.join(path)).ok();
            files(snapshot).iter().filter_map(blob).collect::<Vec<_>>()
        };
        let used: BTreeSet<_> = snapshots.iter().flat_map(named).collect();
        let mut freed = 0;
        for (path, bytes) in blobs(self, repo).into_iter().filter(|(path, _)| is_blob(path)) {
            if fs::canonicalize(&path).is_ok_and(|path| !used.contains(&path)) {
                remove_file(&path)?;
                freed += bytes;
            }
        }
        Ok(freed)
    }
}

fn nothing(name: &HubName, source: ChooseError) -> PullError {
    PullError::Choose { repo: format!("the cache's {}", name.repo), source }
}

/// Everything in a repository's folder of blobs, with its bytes.
fn blobs(cache: &Cache, repo: &RepoId) -> BTreeMap<PathBuf, u64> {
    let entries =
        fs::read_dir(cache.repository(repo).join("blobs")).into_iter().flatten().flatten();
    let sized = |entry: fs::DirEntry| Some((entry.path(), entry.metadata().ok()?.len()));
    entries.filter_map(sized).collect()
}

/// Whether it is whole: parts, journals and Python's beginnings have an ending.
fn is_blob(path: &Path) -> bool {
    path.extension().is_none()
}

fn remove_file(path: &Path) -> Result<(), PullError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(PullError::at(path)(error)),
        _ => Ok(()),
    }
}
