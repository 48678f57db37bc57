//! A folder of saved sections, each a file that appears under its name only when it is whole.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lapidary_core::Section;
use thiserror::Error;

use crate::saved::{
    SavedError, SavedHead, decode_head, decode_section, encode_section, head_bytes,
};

const ENDING: &str = "prefix";
const UNFINISHED: &str = "tmp";
/// Enough of a file for most heads.
const BEGINNING: u64 = 16 << 10;

/// The saved sections of one model and one cache regime in a folder that others may share.
#[derive(Debug)]
pub struct SavedFolder {
    folder: PathBuf,
    binding: u64,
}

/// A saved section cannot be had.
#[derive(Debug, Error)]
pub enum SavedFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is not what it should be.
    #[error(transparent)]
    Content(#[from] SavedError),
}

/// What a look into a folder found.
#[derive(Debug, Default)]
pub struct Found {
    /// Our sections, the least recently used first.
    pub heads: Vec<SavedHead>,
    /// How many files belong to other models or regimes.
    pub foreign: usize,
    /// Files that should be ours and cannot be used, and why.
    pub damaged: Vec<(PathBuf, SavedFileError)>,
}

impl SavedFolder {
    /// Uses a folder, which is made if it is not there. Files that someone began to write, and has
    /// not touched since `abandoned`, are removed.
    ///
    /// # Errors
    /// The folder cannot be made or listed.
    pub fn open(folder: &Path, binding: u64, abandoned: SystemTime) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        for path in with_ending(folder, UNFINISHED)? {
            let touched = fs::metadata(&path).and_then(|data| data.modified());
            if touched.is_ok_and(|touched| touched < abandoned) {
                // Whoever else removes it at the same time does no harm.
                let _ = fs::remove_file(&path);
            }
        }
        Ok(Self { folder: folder.to_owned(), binding })
    }

    /// Looks at every file.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn look(&self) -> io::Result<Found> {
        let mut found = Found::default();
        let mut heads: Vec<(SystemTime, SavedHead)> = Vec::new();
        for path in with_ending(&self.folder, ENDING)? {
            match self.head(&path) {
                Ok(head) => heads.push(head),
                Err(SavedFileError::Content(SavedError::Foreign)) => found.foreign += 1,
                Err(error) => found.damaged.push((path, error)),
            }
        }
        heads.sort_by_key(|(used, head)| (*used, head.from, head.key));
        found.heads = heads.into_iter().map(|(_, head)| head).collect();
        Ok(found)
    }

    /// Writes a section. It is there, and there for good, or it is not there.
    ///
    /// # Errors
    /// It could not be written; nothing is left of it.
    pub fn put(&self, head: &SavedHead, section: &Section) -> io::Result<()> {
        let path = self.path(head.key);
        let unfinished = path.with_extension(format!("{}.{UNFINISHED}", std::process::id()));
        let written = write_whole(&unfinished, &encode_section(self.binding, head, section))
            .and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        // The name is safe once its folder is. Where folders cannot be synchronised, a power cut
        // may take the file back; it takes it back whole.
        if let Ok(folder) = File::open(&self.folder) {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    /// Reads a section, and notes that it was used `now`.
    ///
    /// # Errors
    /// It is not there any more, or it is not what it was.
    pub fn get(&self, key: u64, now: SystemTime) -> Result<Section, SavedFileError> {
        let path = self.path(key);
        let (head, section) = decode_section(self.binding, &fs::read(&path)?)?;
        if head.key != key {
            return Err(SavedError::Damaged.into());
        }
        let touched = File::options().append(true).open(&path);
        let times = FileTimes::new().set_modified(now);
        // A folder that may only be read keeps its order.
        let _ = touched.and_then(|file| file.set_times(times));
        Ok(section)
    }

    /// Removes a section, if it is there.
    pub fn remove(&self, key: u64) {
        // What cannot be removed is found again the next time.
        let _ = fs::remove_file(self.path(key));
    }

    /// Where a section of ours lies.
    pub fn path(&self, key: u64) -> PathBuf {
        self.folder.join(format!("{:016x}-{key:016x}.{ENDING}", self.binding))
    }

    fn head(&self, path: &Path) -> Result<(SystemTime, SavedHead), SavedFileError> {
        let file = File::open(path)?;
        let data = file.metadata()?;
        let mut bytes = Vec::new();
        (&file).take(BEGINNING).read_to_end(&mut bytes)?;
        if let Some(rest) = head_bytes(&bytes).and_then(|all| all.checked_sub(BEGINNING)) {
            (&file).take(rest).read_to_end(&mut bytes)?;
        }
        let head = decode_head(self.binding, &bytes, data.len())?;
        if path != self.path(head.key) {
            return Err(SavedError::Damaged.into());
        }
        Ok((data.modified()?, head))
    }
}

fn with_ending(folder: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|own| own == ending));
    Ok(paths)
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
