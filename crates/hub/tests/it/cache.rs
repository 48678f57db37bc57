//! The cache has the layout that others know, and gives back what is taken out.

use std::fs;
use std::path::Path;

use lapidary_hub::{Cache, HubName};

use crate::server::{COMMIT, Imitation, large, sha256};

fn name(typed: &str) -> HubName {
    typed.parse().expect("a name")
}

fn two() -> Imitation {
    Imitation::of(vec![
        large("m-Q4_K_M.gguf", 1000),
        large("m-Q8_0.gguf", 2000),
        large("deep/down/m-BF16.gguf", 600),
    ])
}

#[test]
#[cfg(unix)]
fn the_layout_is_that_of_huggingface_hub() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path());
    let imitation = two();
    imitation.pull(&cache, "a/b:bf16").expect("pulls");
    let repo = folder.path().join("models--a--b");
    let link = repo.join("snapshots").join(COMMIT).join("deep/down/m-BF16.gguf");
    let etag = sha256(&large("", 600).bytes);
    let to = Path::new("../../../../blobs").join(&etag);
    assert_eq!(fs::read_link(&link).expect("a link"), to);
    assert_eq!(fs::read(link).expect("it leads there"), large("", 600).bytes);
    assert_eq!(fs::read_to_string(repo.join("refs/main")).expect("a ref"), COMMIT);
    let blobs: Vec<_> = fs::read_dir(repo.join("blobs")).expect("blobs").flatten().collect();
    assert_eq!(blobs.len(), 1, "neither parts nor journals stay");
    assert_eq!(blobs[0].file_name().to_string_lossy(), etag);
}

#[test]
#[cfg(unix)]
fn what_python_fetched_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let repo = folder.path().join("models--google--gemma-x");
    let snapshot = repo.join("snapshots").join(COMMIT);
    for folder in ["blobs", "refs"] {
        fs::create_dir_all(repo.join(folder)).expect("a folder");
    }
    fs::create_dir_all(&snapshot).expect("a folder");
    fs::write(repo.join("blobs/abc"), "bytes").expect("a blob");
    fs::write(repo.join("refs/main"), COMMIT).expect("a ref");
    std::os::unix::fs::symlink("../../blobs/abc", snapshot.join("x-Q5_K_M.gguf")).expect("a link");
    std::os::unix::fs::symlink("../../blobs/gone", snapshot.join("x-Q8_0.gguf")).expect("a link");
    let cache = Cache::at(folder.path());
    let found = cache.find(&name("google/gemma-x")).expect("the only one that is there");
    assert_eq!(found.model, snapshot.join("x-Q5_K_M.gguf"));
    assert_eq!(cache.find(&name(&format!("google/gemma-x@{COMMIT}:q5_k_m"))), Some(found));
    assert_eq!(cache.find(&name("google/gemma-x:Q8_0")), None);
    assert_eq!(cache.find(&name("google/gemma-y")), None);
}

#[test]
fn what_is_here_is_not_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path());
    let imitation = two();
    let pulled = imitation.pull(&cache, "a/b:Q8_0").expect("pulls");
    assert_eq!(cache.find(&name("a/b:q8_0")), Some(pulled));
    imitation.change(|world| world.log.clear());
    imitation.pull(&cache, "a/b:Q8_0").expect("pulls");
    assert!(imitation.log().iter().all(|line| !line.contains("GET /m-")), "{:?}", imitation.log());
}

#[test]
fn whoever_comes_second_waits_for_the_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path());
    let imitation = two();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| imitation.pull(&cache, "a/b:Q8_0").expect("pulls"));
        }
    });
    let sent = imitation.log().iter().filter(|line| line.contains("GET /m-")).count();
    assert_eq!(sent, 1 + 4, "a probe and four pieces");
}

#[test]
fn stock_is_what_was_pulled_less_what_was_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("not there yet"));
    assert_eq!(cache.stock().expect("an empty cache"), []);
    let imitation = two();
    for quant in ["Q4_K_M", "Q8_0"] {
        imitation.pull(&cache, &format!("a/b:{quant}")).expect("pulls");
    }
    let stock = cache.stock().expect("readable");
    let files: Vec<_> = stock[0].files.iter().map(|file| (&*file.path, file.bytes)).collect();
    assert_eq!((stock.len(), stock[0].repo.to_string()), (1, "a/b".to_owned()));
    assert_eq!(files, [("m-Q4_K_M.gguf", 1000), ("m-Q8_0.gguf", 2000)]);
    assert!(cache.remove(&name("a/b:Q6_K")).is_err());
    assert!(cache.remove(&name("a/c")).is_err());
    let removed = cache.remove(&name("a/b:q8_0")).expect("it is there");
    assert_eq!((removed.files, removed.freed), (vec!["m-Q8_0.gguf".to_owned()], 2000));
    assert_eq!(cache.find(&name("a/b:Q8_0")), None);
    assert!(cache.find(&name("a/b:Q4_K_M")).is_some());
    let removed = cache.remove(&name("a/b")).expect("it is there");
    assert_eq!((removed.files.len(), removed.freed), (1, 1000));
    assert_eq!(cache.stock().expect("readable"), []);
}
