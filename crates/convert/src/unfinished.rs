//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::ConvertError;

/// A file that has its name only when it is whole. Dropped before that, it is removed; a process
/// that is killed leaves it under its other name, where the next one starts over.
pub(crate) struct Unfinished {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    kept: bool,
}

impl Unfinished {
    pub(crate) fn create(path: &Path) -> Result<Self, ConvertError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".unfinished");
        let temporary = path.with_file_name(name);
        match File::create(&temporary) {
            Ok(file) => Ok(Self { file, temporary, path: path.to_owned(), kept: false }),
            Err(source) => Err(output(path, source)),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name.
    pub(crate) fn keep(mut self) -> Result<(), ConvertError> {
        self.file.sync_all().map_err(|source| output(&self.path, source))?;
        fs::rename(&self.temporary, &self.path).map_err(|source| output(&self.path, source))?;
        self.kept = true;
        Ok(())
    }

    /// What messages call it.
    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.kept {
            // Nobody can be told here, and the next run overwrites what is left.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

fn output(path: &Path, source: io::Error) -> ConvertError {
    ConvertError::Output { path: path.display().to_string(), source }
}
