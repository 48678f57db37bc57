//! Models that are split over several files: `NAME-00001-of-0000N.gguf` and so on.

use std::path::{Path, PathBuf};

use super::part::Part;
use crate::bytes::Bytes;
use crate::{Fault, OpenError};

/// What a file says about being a part.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) struct Split {
    /// Which part, from 0.
    no: i64,
    /// How many parts there are; at least two.
    pub(super) count: i64,
}

impl Split {
    /// `None` for a file that is all of its model.
    pub(super) fn of(part: &Part) -> Result<Option<Self>, OpenError> {
        let Some(count) = int(part, COUNT)?.filter(|&count| count > 1) else { return Ok(None) };
        match int(part, NO)? {
            Some(no) if (0..count).contains(&no) => Ok(Some(Self { no, count })),
            _ => Err(Fault::Expected("the number of a part").at(&part.origin, key(NO))),
        }
    }
}

/// All parts of the model whose first part is given, that one included.
pub(super) fn gather(path: &Path, first: Part, split: Split) -> Result<Vec<Part>, OpenError> {
    let Split { no, count } = split;
    if no != 0 {
        return Err(OpenError::LaterPart {
            path: show(path),
            part: no + 1,
            count,
            first: beside(path, no, 0, count).map_or_else(|| ANY_FIRST.to_owned(), |p| show(&p)),
        });
    }
    let promised = int(&first, TENSORS)?;
    let mut parts = vec![first];
    for no in 1..count {
        let path = beside(path, 0, no, count)
            .ok_or_else(|| OpenError::PartName { path: show(path), count })?;
        parts.push(later(&path, Split { no, count })?);
    }
    check_total(&parts, promised)?;
    Ok(parts)
}

/// The path of part `to`, told from that of part `from`; `None` if that is not named as parts are.
fn beside(path: &Path, from: i64, to: i64, count: i64) -> Option<PathBuf> {
    let stem = path.file_name()?.to_str()?.strip_suffix(&suffix(from, count))?;
    Some(path.with_file_name(stem.to_owned() + &suffix(to, count)))
}

fn suffix(no: i64, count: i64) -> String {
    format!("-{:05}-of-{count:05}.gguf", no + 1)
}

fn later(path: &Path, split: Split) -> Result<Part, OpenError> {
    if !path.exists() {
        return Err(OpenError::MissingPart { path: show(path), count: split.count });
    }
    let part = Part::read(show(path), Bytes::map(path)?)?;
    if Split::of(&part)? == Some(split) {
        return Ok(part);
    }
    Err(Fault::Expected("the part that the file's name says").at(&part.origin, key(NO)))
}

fn check_total(parts: &[Part], promised: Option<i64>) -> Result<(), OpenError> {
    let found = parts.iter().map(|part| part.tensors.len()).sum::<usize>();
    match promised {
        Some(promised) if usize::try_from(promised) != Ok(found) => {
            let origin = parts[0].origin.clone();
            Err(OpenError::PartTensors { origin, promised, found })
        }
        _ => Ok(()),
    }
}

fn int(part: &Part, name: &str) -> Result<Option<i64>, OpenError> {
    let Some(value) = part.value(name) else { return Ok(None) };
    let int = value.as_int();
    int.map(Some).ok_or_else(|| Fault::Expected("a whole number").at(&part.origin, key(name)))
}

fn key(name: &str) -> String {
    format!("key `{name}`")
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";
const ANY_FIRST: &str = "the one whose name contains -00001-of-";
