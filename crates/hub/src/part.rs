//! A file that is not whole yet: its bytes, and a journal of the pieces that are on the disk.
//!
//! The journal's first line says how the file is cut; each further line is a finished piece. It is
//! written after the bytes that it vouches for.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use crate::error::PullError;

/// A file in pieces.
pub(crate) struct Part {
    path: PathBuf,
    /// Bytes of the whole file.
    total: u64,
    /// Bytes of a piece; the last may be shorter.
    piece: u64,
    journal: Mutex<Journal>,
}

struct Journal {
    file: File,
    done: BTreeSet<u64>,
    /// The first piece that nobody has taken.
    next: u64,
}

impl Part {
    /// Goes on with what lies at `path`, or begins anew where that was cut differently.
    pub(crate) fn open(path: &Path, total: u64, piece: u64) -> Result<Self, PullError> {
        let at = |path: &Path| PullError::at(path.to_owned());
        let head = format!("{total} {piece}");
        let written = fs::read_to_string(journal_of(path)).unwrap_or_default();
        let known = path.exists().then(|| finished(&written, &head, total.div_ceil(piece)));
        let done = known.flatten().unwrap_or_default();
        let bytes =
            OpenOptions::new().create(true).write(true).truncate(done.is_empty()).open(path);
        bytes.map_err(at(path))?;
        let lines = done.iter().map(|piece| format!("{piece}\n"));
        let text = lines.fold(format!("{head}\n"), |text, line| text + &line);
        let begun = File::create(journal_of(path)).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            Ok(file)
        });
        let file = begun.map_err(at(&journal_of(path)))?;
        let journal = Mutex::new(Journal { file, done, next: 0 });
        Ok(Self { path: path.to_owned(), total, piece, journal })
    }

    /// Bytes that are on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal
            .done
            .iter()
            .map(|piece| self.range(*piece))
            .map(|range| range.end - range.start)
            .sum()
    }

    /// A piece that nobody has fetched or taken.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let pieces = self.total.div_ceil(self.piece);
        let piece = (journal.next..pieces).find(|piece| !journal.done.contains(piece))?;
        journal.next = piece + 1;
        Some(piece)
    }

    /// The bytes of a piece.
    pub(crate) fn range(&self, piece: u64) -> Range<u64> {
        let start = piece * self.piece;
        start..(start + self.piece).min(self.total)
    }

    /// A place to write from a byte on.
    pub(crate) fn writer(&self, from: u64) -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).open(&self.path)?;
        file.seek(SeekFrom::Start(from))?;
        Ok(file)
    }

    /// A piece is complete in `written`.
    pub(crate) fn finish(&self, piece: u64, written: &File) -> io::Result<()> {
        written.sync_data()?;
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(journal.file, "{piece}")?;
        journal.done.insert(piece);
        Ok(())
    }

    /// The checksum of all bytes.
    pub(crate) fn sha256(&self) -> io::Result<String> {
        let mut digest = Sha256::new();
        io::copy(&mut io::BufReader::with_capacity(1 << 20, File::open(&self.path)?), &mut digest)?;
        Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Gives the whole file its name.
    pub(crate) fn publish(self, name: &Path) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        fs::rename(&self.path, name)?;
        fs::remove_file(journal_of(&self.path))
    }

    /// Throws everything away.
    pub(crate) fn discard(self) {
        // What cannot be removed is found wrong again by its checksum.
        let _ = fs::remove_file(journal_of(&self.path));
        let _ = fs::remove_file(&self.path);
    }
}

fn journal_of(path: &Path) -> PathBuf {
    path.with_extension("pieces")
}

/// The pieces that a journal vouches for; none if it is about another file. A last line without
/// its end was cut off.
fn finished(written: &str, head: &str, pieces: u64) -> Option<BTreeSet<u64>> {
    let whole = &written[..written.rfind('\n')?];
    let mut lines = whole.lines();
    let same = lines.next() == Some(head);
    let piece = |line: &str| line.parse().ok().filter(|piece| *piece < pieces);
    if same { lines.map(piece).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(part: &Part) -> Vec<u64> {
        std::iter::from_fn(|| part.take()).collect()
    }

    #[test]
    fn finished_pieces_are_not_fetched_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.part");
        let part = Part::open(&path, 25, 10).expect("opens");
        assert_eq!(taken(&part), [0, 1, 2]);
        part.finish(1, &part.writer(10).expect("opens")).expect("writes");
        assert_eq!((part.bytes(), part.range(2)), (10, 20..25));
        let again = Part::open(&path, 25, 10).expect("opens");
        assert_eq!((again.bytes(), taken(&again)), (10, vec![0, 2]));
        assert_eq!(taken(&Part::open(&path, 25, 5).expect("opens")), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_line_cut_short_vouches_for_nothing() {
        assert_eq!(finished("99 10\n1\n2", "99 10", 10), Some(BTreeSet::from([1])));
        assert_eq!(finished("99 10\n12\n", "99 10", 10), None);
        assert_eq!(finished("99 10", "99 10", 10), None);
    }
}
