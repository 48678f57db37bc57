//! What the hub refuses, and what is refused of it, in one sentence each.

use lapidary_hub::{Cache, Options, PullError};

use crate::server::{Imitation, large, small};

fn cache() -> (tempfile::TempDir, Cache) {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("hub"));
    (folder, cache)
}

fn refused(status: u16, line: &'static str, token: Option<&str>) -> String {
    let (_folder, cache) = cache();
    let imitation = Imitation::of(vec![large("m-Q8_0.gguf", 10)]);
    imitation.change(|world| world.first.push_back((status, line)));
    let options = Options { token: token.map(str::to_owned), ..imitation.options() };
    let failed = imitation.pull_with(&options, &cache, "a/b:Q8_0", &|_| {}).expect_err("refused");
    assert!(!cache.root().join("models--a--b").exists(), "nothing is left behind");
    failed.to_string().replace(&imitation.url, "HUB")
}

#[test]
fn every_refusal_says_what_to_do() {
    for (status, line, token, sentence) in [
        (
            401,
            "",
            None,
            "a/b cannot be read without a token; check its name, or put a token of huggingface.co into HF_TOKEN",
        ),
        (
            401,
            "X-Error-Code: RepoNotFound",
            Some("t"),
            "a/b (main) does not exist at HUB; check the spelling, or that your token may read it",
        ),
        (
            401,
            "",
            Some("t"),
            "the hub refused the token; make another at huggingface.co/settings/tokens",
        ),
        (
            401,
            "X-Error-Code: GatedRepo",
            None,
            "a/b is gated; accept its terms at HUB/a/b with the account of your token",
        ),
        (
            403,
            "X-Error-Code: GatedRepo",
            Some("t"),
            "a/b is gated; accept its terms at HUB/a/b with the account of your token",
        ),
        (
            404,
            "X-Error-Code: RevisionNotFound",
            None,
            "a/b (main) does not exist at HUB; check the spelling, or that your token may read it",
        ),
        (
            418,
            "",
            None,
            "HUB/api/models/a/b/revision/main answered status 418; is this address a hub?",
        ),
        (
            302,
            "Location: gopher://x",
            None,
            "HUB/api/models/a/b/revision/main answered a redirect to nowhere; is this address a hub?",
        ),
    ] {
        let said = refused(status, line, token);
        assert_eq!(said, sentence, "{status} {line}");
    }
}

#[test]
fn a_token_opens_the_door_and_stays_at_it() {
    let (_folder, cache) = cache();
    let imitation = Imitation::of(vec![large("m-Q8_0.gguf", 3000)]);
    imitation.change(|world| world.token = Some("secret"));
    let failed = imitation.pull(&cache, "a/b").expect_err("nobody said who asks");
    assert!(matches!(failed, PullError::NoToken { .. }), "{failed}");
    let options = Options { token: Some("secret".into()), ..imitation.options() };
    imitation.pull_with(&options, &cache, "a/b", &|_| {}).expect("the token is right");
    let hub = imitation.url.rsplit(':').next().expect("a port").to_owned();
    let (at_hub, at_storage): (Vec<_>, Vec<_>) =
        imitation.log().into_iter().skip(1).partition(|line| line.starts_with(&hub));
    assert!(
        at_hub.len() > 7 && at_hub.iter().all(|line| line.ends_with("Bearer secret")),
        "{at_hub:?}"
    );
    assert!(
        at_storage.len() > 5 && at_storage.iter().all(|line| line.ends_with(" -")),
        "{at_storage:?}"
    );
}

#[test]
fn a_file_that_would_leave_the_cache_is_refused() {
    for path in
        ["../m.gguf", "/etc/m.gguf", "a/../../m.gguf", "a\\..\\m.gguf", "C:m.gguf", "a//m.gguf", ""]
    {
        let (_folder, cache) = cache();
        let imitation = Imitation::of(vec![large("m-Q8_0.gguf", 10), small(path, "x")]);
        let failed = imitation.pull(&cache, "a/b:Q8_0").expect_err(path);
        assert!(matches!(failed, PullError::Path { .. }), "{failed}");
        assert!(!cache.root().exists());
    }
}

#[test]
fn an_unknown_quantisation_lists_what_there_is() {
    let (_folder, cache) = cache();
    let imitation = Imitation::of(vec![large("m-Q8_0.gguf", 10), large("m-UD-IQ2_M.gguf", 10)]);
    let failed = imitation.pull(&cache, "a/b:Q3_K_S").expect_err("there is none");
    assert_eq!(failed.to_string(), "a/b: there is no `Q3_K_S`; there is Q8_0, UD-IQ2_M");
}

#[test]
fn what_is_no_hub_is_said_to_be_none() {
    let (_folder, cache) = cache();
    let imitation = Imitation::of(Vec::new());
    for url in ["", "huggingface.co", "ftp://x", "http://"] {
        let failed =
            imitation.pull_with(&Options::new(url), &cache, "a/b", &|_| {}).expect_err(url);
        assert!(matches!(failed, PullError::Address(_)), "{url}: {failed}");
    }
    imitation.change(|world| world.first.push_back((200, "")));
    let failed = imitation.pull(&cache, "a/b").expect_err("an empty page");
    assert!(matches!(failed, PullError::Strange { .. }), "{failed}");
}
