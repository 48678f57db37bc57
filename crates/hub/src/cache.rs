//! The cache: `models--OWNER--REPO/{blobs,refs,snapshots}`, as Python's `huggingface_hub` keeps it.
//!
//! A blob is a file's bytes under the hub's name for them. A snapshot is a commit's files, each a
//! link to a blob. A ref is a branch's or tag's commit. A blob appears when it is whole, a ref when
//! everything that was asked for is there.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::choose::Choice;
use crate::error::PullError;
use crate::name::{HubName, RepoId};
use crate::pull::Pulled;

/// A folder of fetched models.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache in a folder, which need not exist.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The model that a name means, if all of it is here. Asks nobody.
    pub fn find(&self, name: &HubName) -> Option<Pulled> {
        let commit = self.commit(&name.repo, &name.revision)?;
        let snapshot = self.snapshot(&name.repo, &commit);
        let choice = Choice::of(&files(&snapshot), name.quant.as_deref()).ok()?;
        Some(Pulled::new(&snapshot, &choice))
    }

    /// The commit that a revision was when something of it was last fetched.
    fn commit(&self, repo: &RepoId, revision: &str) -> Option<String> {
        let written = fs::read_to_string(self.repository(repo).join("refs").join(revision));
        let commit = written.map(|text| text.trim().to_owned()).unwrap_or_else(|_| revision.into());
        let hexadecimal = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        (hexadecimal && self.snapshot(repo, &commit).is_dir()).then_some(commit)
    }

    pub(crate) fn repository(&self, repo: &RepoId) -> PathBuf {
        self.root.join(repo.folder())
    }

    pub(crate) fn blob(&self, repo: &RepoId, etag: &str) -> PathBuf {
        self.repository(repo).join("blobs").join(etag)
    }

    pub(crate) fn snapshot(&self, repo: &RepoId, commit: &str) -> PathBuf {
        self.repository(repo).join("snapshots").join(commit)
    }

    pub(crate) fn locks(&self, repo: &RepoId) -> PathBuf {
        self.root.join(".locks").join(repo.folder())
    }

    /// Waits until nobody else fetches these bytes; `waiting` is called if somebody does. The lock
    /// is the one that Python takes, and ends with the value.
    pub(crate) fn lock(
        &self,
        repo: &RepoId,
        etag: &str,
        waiting: impl FnOnce(),
    ) -> Result<File, PullError> {
        let path = self.locks(repo).join(format!("{etag}.lock"));
        let folders = [self.locks(repo), self.repository(repo).join("blobs")];
        for folder in folders {
            fs::create_dir_all(&folder).map_err(PullError::at(folder))?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(PullError::at(&path))?;
        let locked = match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                waiting();
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        };
        locked.map_err(PullError::at(path))?;
        Ok(file)
    }

    /// Makes a blob appear as a commit's file.
    pub(crate) fn link(
        &self,
        repo: &RepoId,
        commit: &str,
        path: &str,
        etag: &str,
    ) -> Result<(), PullError> {
        let link = self.snapshot(repo, commit).join(path);
        let up = "../".repeat(2 + path.matches('/').count());
        let folder = link.parent().unwrap_or(&link).to_owned();
        let made = fs::create_dir_all(folder)
            .and_then(|()| link_file(&format!("{up}blobs/{etag}"), &self.blob(repo, etag), &link));
        made.map_err(PullError::at(link))
    }

    /// Says which commit a revision is.
    pub(crate) fn refer(
        &self,
        repo: &RepoId,
        revision: &str,
        commit: &str,
    ) -> Result<(), PullError> {
        if revision == commit {
            return Ok(());
        }
        let path = self.repository(repo).join("refs").join(revision);
        let folder = path.parent().unwrap_or(&path).to_owned();
        let written = fs::create_dir_all(folder).and_then(|()| {
            let unfinished = beside(&path);
            fs::write(&unfinished, commit)?;
            fs::rename(unfinished, &path)
        });
        written.map_err(PullError::at(path))
    }
}

/// A name that nobody reads, in the same folder; no other thread or process has it.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    let (process, thread) = (std::process::id(), std::thread::current().id());
    name.push(format!(".{process}.{thread:?}.unfinished"));
    path.with_file_name(name)
}

/// A link in one step, in place of whatever stood there.
#[cfg(unix)]
fn link_file(relative: &str, _blob: &Path, link: &Path) -> io::Result<()> {
    let unfinished = beside(link);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => std::os::unix::fs::symlink(relative, &unfinished)?,
    }
    fs::rename(unfinished, link)
}

/// A second name for the same bytes: symbolic links need rights that people may not have here.
#[cfg(not(unix))]
fn link_file(_relative: &str, blob: &Path, link: &Path) -> io::Result<()> {
    match fs::remove_file(link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::hard_link(blob, link),
    }
}

/// Paths of the files below a folder that are there and not only named, in order. A folder that
/// is a link is not entered.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![String::new()];
    while let Some(inner) = left.pop() {
        for entry in fs::read_dir(folder.join(&inner)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if inner.is_empty() { name } else { format!("{inner}/{name}") };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(path);
            } else if entry.path().is_file() && !path.ends_with(".unfinished") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
