//! A checkpoint is never in memory as a whole. Alone in its binary, because the peak is the
//! process's.

use lapidary_convert::{Draft, Mix, Recipe, Workers};
use lapidary_format::Folder;
use lapidary_testkit::Checkpoint;

/// Bytes that the process has had in memory at most, mapped files included.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

#[test]
fn memory_does_not_grow_with_the_checkpoint() {
    let Some(before) = peak() else {
        eprintln!("skipped: the system does not tell how much memory a process has had");
        return;
    };
    // 4 GB of weights in the slow form.
    let layers = if cfg!(feature = "slow") { 40 } else { 4 };
    let shape = Checkpoint { layers, hidden: 2048, feed_forward: 8192, shards: 4 };
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    shape.write(from.path(), 1);
    let folder = Folder::open(from.path()).unwrap();
    let draft = Draft::of_folder(&folder, "large").unwrap();
    let recipe = Recipe::plain(Mix::Q8_0);
    let workers = Workers::new(2).unwrap();
    draft.write(&recipe, &to.path().join("x.gguf"), &workers, &mut |_| {}).unwrap();
    let grown = peak().unwrap() - before;
    eprintln!("{} MB for {layers} layers of 100 MB", grown >> 20);
    // Eight pieces of a quarter of a million numbers, as stored, as floats, and as blocks.
    assert!(grown < 96 << 20, "{} MB", grown >> 20);
}
