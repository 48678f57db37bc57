//! Whatever happens on the way, a file is right or absent, and the next try goes on.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lapidary_hub::{Cache, Event, PullError};
use proptest::prelude::*;

use crate::server::{COMMIT, Fault, Imitation, large, small};

const FILE: &str = "m-Q4_K_M.gguf";

fn cache() -> (tempfile::TempDir, Cache) {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("hub"));
    (folder, cache)
}

fn imitation(length: usize, faults: Vec<Fault>) -> Imitation {
    let imitation = Imitation::of(vec![large(FILE, length)]);
    imitation.change(|world| world.faults = faults.into());
    imitation
}

/// The file under its final names, if it is there.
fn found(cache: &Cache) -> Option<Vec<u8>> {
    let repo = cache.root().join("models--a--b");
    std::fs::read(repo.join("snapshots").join(COMMIT).join(FILE)).ok()
}

fn blobs(cache: &Cache) -> usize {
    let blobs = std::fs::read_dir(cache.root().join("models--a--b/blobs"));
    let whole = |entry: std::fs::DirEntry| entry.path().extension().is_none();
    blobs.map_or(0, |entries| entries.flatten().map(whole).filter(|whole| *whole).count())
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        2 => Just(Fault::None),
        4 => (0usize..600).prop_map(Fault::Cut),
        1 => Just(Fault::Cut(0)),
        1 => prop_oneof![Just(403u16), Just(404), Just(429), Just(500), Just(503)].prop_map(Fault::Status),
        1 => Just(Fault::NoRange),
        1 => Just(Fault::Flip),
        1 => (1u64..9).prop_map(Fault::Longer),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_file_is_right_or_absent(
        length in prop_oneof![Just(0usize), Just(1), 500usize..520, 1000usize..5000],
        faults in prop::collection::vec(fault(), 0..20),
    ) {
        let (_folder, cache) = cache();
        let imitation = imitation(length, faults);
        let whole = large(FILE, length).bytes;
        match imitation.pull(&cache, "a/b") {
            Ok(pulled) => {
                prop_assert_eq!(std::fs::read(&pulled.model).expect("it is there"), whole.clone());
                prop_assert_eq!(found(&cache), Some(whole.clone()));
            }
            Err(_) => prop_assert_eq!((found(&cache), blobs(&cache)), (None, 0)),
        }
        imitation.change(|world| world.faults.clear());
        imitation.pull(&cache, "a/b").expect("nothing is wrong any more");
        prop_assert_eq!(found(&cache), Some(whole));
    }
}

#[test]
fn a_connection_cut_at_any_byte_goes_on_from_there() {
    for at in (1..300).step_by(13) {
        let (_folder, cache) = cache();
        let imitation = imitation(300, vec![Fault::Cut(at)]);
        imitation.pull(&cache, "a/b").expect("the second request brings the rest");
        assert_eq!(found(&cache), Some(large(FILE, 300).bytes), "{at}");
        let ranges = imitation
            .log()
            .iter()
            .filter(|line| line.contains(&format!("Some(({at}, 299))")))
            .count();
        assert_eq!(ranges, 2, "once at the hub, once at the storage: {at}");
    }
}

#[test]
fn pieces_that_are_here_are_not_fetched_again() {
    let (_folder, cache) = cache();
    let imitation = imitation(5000, vec![Fault::None; 6]);
    imitation.change(|world| world.faults.extend(vec![Fault::Status(500); 100]));
    let failed = imitation.pull(&cache, "a/b").expect_err("the storage is down");
    assert!(matches!(failed, PullError::Cut { .. }), "{failed}");
    imitation.change(|world| (world.faults.clear(), world.log.clear()).0);
    let first = Mutex::new(None);
    let watch = |event: Event<'_>| {
        if let Event::Got { bytes, total, .. } = event {
            assert_eq!(total, 5000);
            first.lock().expect("no panic").get_or_insert(bytes);
        }
    };
    imitation.pull_with(&imitation.options(), &cache, "a/b", &watch).expect("it is up again");
    let before = first.into_inner().expect("no panic").expect("there was progress");
    assert_eq!(before, 5 * 512, "the probe and five pieces came before the storage went down");
    let sent = imitation.log().iter().filter(|line| line.contains("GET /m-Q4")).count();
    assert_eq!(sent, 1 + 10 - 5, "a probe and the pieces that were missing");
    assert_eq!(found(&cache), Some(large(FILE, 5000).bytes));
}

#[test]
fn a_large_file_comes_over_several_connections() {
    let (_folder, cache) = cache();
    let imitation = imitation(4096, Vec::new());
    let most = AtomicU64::new(0);
    let watch = |event: Event<'_>| {
        if let Event::Got { bytes, .. } = event {
            most.fetch_max(bytes, Ordering::Relaxed);
        }
    };
    imitation.pull_with(&imitation.options(), &cache, "a/b", &watch).expect("pulls");
    assert_eq!(most.into_inner(), 4096);
    let pieces = imitation.log().iter().filter(|line| line.contains("GET /m-Q4")).count();
    assert_eq!(pieces, 1 + 8);
}

#[test]
fn a_server_without_ranges_sends_everything_once() {
    let (_folder, cache) = cache();
    let imitation = imitation(5000, vec![Fault::NoRange, Fault::NoRange]);
    imitation.pull(&cache, "a/b").expect("pulls");
    assert_eq!(found(&cache), Some(large(FILE, 5000).bytes));
    let sent = imitation.log().iter().filter(|line| line.contains("GET /m-Q4")).count();
    assert_eq!(sent, 2, "the probe and the file");
}

#[test]
fn damage_is_found_and_thrown_away() {
    let (_folder, cache) = cache();
    let imitation = imitation(300, vec![Fault::Flip]);
    let failed = imitation.pull(&cache, "a/b").expect_err("the checksum is wrong");
    assert!(matches!(failed, PullError::Damaged { .. }), "{failed}");
    assert_eq!((found(&cache), blobs(&cache)), (None, 0));
    let left = std::fs::read_dir(cache.root().join("models--a--b/blobs")).expect("a folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn another_length_is_refused() {
    let (_folder, cache) = cache();
    let imitation = imitation(1000, vec![Fault::None, Fault::Longer(3)]);
    let failed = imitation.pull(&cache, "a/b").expect_err("the length is wrong");
    assert!(matches!(failed, PullError::Length { expected: 1000, found: 1003, .. }), "{failed}");
}

#[test]
fn an_address_of_the_storage_that_has_grown_old_is_asked_for_again() {
    let (_folder, cache) = cache();
    let imitation = imitation(300, vec![Fault::Cut(100), Fault::Status(403)]);
    imitation.pull(&cache, "a/b").expect("the hub gives a fresh address");
    let asked = imitation.log().iter().filter(|line| line.contains("GET /a/b/resolve")).count();
    assert_eq!(asked, 3);
}

#[test]
fn busy_is_waited_for() {
    let (_folder, cache) = cache();
    let imitation = Imitation::of(vec![large(FILE, 300)]);
    imitation.change(|world| world.first.push_back((429, "Retry-After: 0")));
    imitation.pull(&cache, "a/b").expect("it is free the second time");
    imitation.change(|world| world.first.push_back((429, "Retry-After: 4000")));
    let failed = imitation.pull(&cache, "a/b").expect_err("that is too long");
    assert!(matches!(&failed, PullError::Busy { after } if after.as_secs() == 4000), "{failed}");
}

#[test]
fn a_small_file_is_whole_too() {
    let (_folder, cache) = cache();
    let files = vec![small("config.json", "{}"), large("model.safetensors", 700)];
    let imitation = Imitation::of(files);
    let pulled = imitation.pull(&cache, "a/b").expect("a folder");
    assert_eq!(std::fs::read_to_string(pulled.model.join("config.json")).expect("there"), "{}");
    assert_eq!(pulled.files.len(), 2);
}
