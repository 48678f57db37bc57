//! A folder of saved sections: whole files or none, others' left alone, damage named.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use lapidary_format::{SavedError, SavedFileError, SavedFolder};

use crate::saved::section;

const OURS: u64 = 0xFEED;

fn open(folder: &Path) -> SavedFolder {
    SavedFolder::open(folder, OURS, SystemTime::UNIX_EPOCH).unwrap()
}

#[test]
fn what_was_put_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("made").join("on demand");
    let (head, section) = section(0, 30, &[30, 4], 1);
    open(&deep).put(&head, &section).unwrap();
    let again = open(&deep);
    let found = again.look().unwrap();
    assert_eq!((found.heads, found.foreign, found.damaged.len()), (vec![head.clone()], 0, 0));
    assert_eq!(again.get(head.key, SystemTime::now()).unwrap(), section);
    again.remove(head.key);
    again.remove(head.key);
    assert!(again.look().unwrap().heads.is_empty());
    assert_eq!(fs::read_dir(&deep).unwrap().count(), 0, "nothing else is left");
}

#[test]
fn heads_larger_than_a_first_look_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (head, section) = section(0, 20_000, &[20_000, 4], 1);
    open(folder.path()).put(&head, &section).unwrap();
    assert_eq!(open(folder.path()).look().unwrap().heads, [head]);
}

#[test]
fn files_of_other_models_are_counted_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = SavedFolder::open(folder.path(), OURS + 1, SystemTime::UNIX_EPOCH).unwrap();
    let (head, section) = section(0, 30, &[30, 4], 1);
    theirs.put(&head, &section).unwrap();
    let found = open(folder.path()).look().unwrap();
    assert_eq!((found.heads.len(), found.foreign, found.damaged.len()), (0, 1, 0));
    // Under our name it is still theirs.
    let ours = open(folder.path());
    fs::rename(theirs.path(head.key), ours.path(head.key)).unwrap();
    let refused = ours.get(head.key, SystemTime::now());
    assert!(matches!(refused, Err(SavedFileError::Content(SavedError::Foreign))), "{refused:?}");
}

#[test]
fn damaged_files_are_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let ours = open(folder.path());
    let heads: Vec<_> = (1..5)
        .map(|seed| {
            let (head, section) = section(0, 30, &[30, 4], seed);
            ours.put(&head, &section).unwrap();
            head
        })
        .collect();
    let bytes = fs::read(ours.path(heads[0].key)).unwrap();
    fs::write(ours.path(heads[0].key), &bytes[..bytes.len() - 1]).unwrap();
    fs::write(ours.path(heads[1].key), b"").unwrap();
    fs::copy(ours.path(heads[3].key), ours.path(heads[2].key)).unwrap();
    fs::write(folder.path().join("notes.prefix"), b"shopping").unwrap();
    fs::write(folder.path().join("notes.txt"), b"shopping").unwrap();
    let found = ours.look().unwrap();
    assert_eq!(found.heads, [heads[3].clone()]);
    let mut named: Vec<_> = found.damaged.into_iter().map(|(path, _)| path).collect();
    named.sort();
    let mut expected: Vec<_> = heads[..3].iter().map(|head| ours.path(head.key)).collect();
    expected.push(folder.path().join("notes.prefix"));
    expected.sort();
    assert_eq!(named, expected);
}

#[test]
fn damage_to_the_entries_shows_when_they_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let ours = open(folder.path());
    let (head, section) = section(0, 30, &[30, 4], 1);
    ours.put(&head, &section).unwrap();
    let mut bytes = fs::read(ours.path(head.key)).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(ours.path(head.key), bytes).unwrap();
    assert_eq!(ours.look().unwrap().heads.len(), 1);
    let refused = ours.get(head.key, SystemTime::now());
    assert!(matches!(refused, Err(SavedFileError::Content(SavedError::Damaged))), "{refused:?}");
}

#[test]
fn what_was_used_last_comes_last() {
    let folder = tempfile::tempdir().unwrap();
    let ours = open(folder.path());
    let later = SystemTime::now() + Duration::from_secs(60);
    let heads: Vec<_> = (1..4).map(|seed| section(0, 30, &[30], seed)).collect();
    heads.iter().for_each(|(head, section)| ours.put(head, section).unwrap());
    ours.get(heads[1].0.key, later).unwrap();
    ours.get(heads[0].0.key, later + Duration::from_secs(60)).unwrap();
    let order: Vec<_> = ours.look().unwrap().heads.into_iter().map(|head| head.key).collect();
    assert_eq!(order, [2, 1, 0].map(|i: usize| heads[i].0.key));
}

#[test]
fn files_that_were_never_finished_are_removed_once_abandoned() {
    let folder = tempfile::tempdir().unwrap();
    let torn = folder.path().join("0-0.99.tmp");
    fs::write(&torn, b"LPDPREFX and then the power went").unwrap();
    let ours = open(folder.path());
    assert!(torn.exists(), "someone may still be writing it");
    assert!(ours.look().unwrap().damaged.is_empty(), "it is nobody's section yet");
    let later = SystemTime::now() + Duration::from_secs(60);
    SavedFolder::open(folder.path(), OURS, later).unwrap();
    assert!(!torn.exists());
}
