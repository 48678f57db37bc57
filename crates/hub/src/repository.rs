//! What the hub says about a repository and about one file of it.

use serde_json::Value;
use ureq::Body;
use ureq::http::Response;

use crate::address::encoded;
use crate::client::{Client, Fault, Tries, What, header};
use crate::error::PullError;
use crate::name::{RepoId, is_path};

/// A revision's files.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The commit that the revision is.
    pub(crate) commit: String,
    /// Paths inside the repository, checked to stay there.
    pub(crate) files: Vec<String>,
}

/// One file, before it is here.
#[derive(Debug)]
pub(crate) struct Remote {
    /// Path inside the repository.
    pub(crate) path: String,
    /// Where to ask for its bytes.
    pub(crate) url: String,
    /// What the cache calls its bytes.
    pub(crate) etag: String,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Of the whole file, in lower case; only large files have one.
    pub(crate) sha256: Option<String>,
}

/// The most bytes of a listing that are read.
const LONGEST_LISTING: u64 = 64 << 20;

/// Asks which files a revision has.
pub(crate) fn list(client: &Client, repo: &RepoId, revision: &str) -> Result<Listing, PullError> {
    let encoded = encoded(revision).replace('/', "%2F");
    let url = format!("{}/api/models/{repo}/revision/{encoded}", client.url);
    let name = repo.to_string();
    let what = What { repo: &name, part: revision };
    let text = patiently(client, &url, || {
        let answer = client.get(&url, None, &what)?;
        let mut body = answer.into_body();
        body.with_config().limit(LONGEST_LISTING).read_to_string().map_err(Fault::passing)
    })?;
    let listing = read(&text);
    let strange =
        || PullError::Strange { url, what: "something other than a list of files".into() };
    let listing = listing.ok_or_else(strange)?;
    match listing.files.iter().find(|file| !is_path(file)) {
        Some(file) => Err(PullError::Path { repo: name, file: file.clone() }),
        None => Ok(listing),
    }
}

fn read(text: &str) -> Option<Listing> {
    let answer: Value = serde_json::from_str(text).ok()?;
    let commit = answer.get("sha")?.as_str()?;
    let name = |file: &Value| file.get("rfilename")?.as_str().map(str::to_owned);
    let files = answer.get("siblings")?.as_array()?.iter().map(name).collect::<Option<_>>()?;
    is_commit(commit).then(|| Listing { commit: commit.to_owned(), files })
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Asks what a file is.
pub(crate) fn describe(
    client: &Client,
    repo: &RepoId,
    commit: &str,
    path: &str,
) -> Result<Remote, PullError> {
    let url = format!("{}/{repo}/resolve/{commit}/{}", client.url, encoded(path));
    let name = repo.to_string();
    let what = What { repo: &name, part: path };
    let answer = patiently(client, &url, || client.head(&url, &what))?;
    let strange = || PullError::Strange {
        url: url.clone(),
        what: "without saying what and how long the file is".into(),
    };
    let etag = etag(&answer).ok_or_else(strange)?;
    let bytes = bytes(&answer).ok_or_else(strange)?;
    let is_sha256 = etag.len() == 64 && etag.bytes().all(|byte| byte.is_ascii_hexdigit());
    let sha256 = is_sha256.then(|| etag.to_ascii_lowercase());
    Ok(Remote { path: path.to_owned(), etag, bytes, sha256, url })
}

/// The hub's name for the bytes: that of what is linked, else of what is sent. It becomes a file's
/// name, so nothing but words is taken.
fn etag(answer: &Response<Body>) -> Option<String> {
    let found = header(answer, "x-linked-etag").or_else(|| header(answer, "etag"))?;
    let bare = found.trim_start_matches("W/").trim_matches('"');
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let fits = (1..=128).contains(&bare.len()) && bare.bytes().all(word);
    fits.then(|| bare.to_owned())
}

fn bytes(answer: &Response<Body>) -> Option<u64> {
    let own = || header(answer, "content-length").filter(|_| answer.status().is_success());
    header(answer, "x-linked-size").or_else(own)?.parse().ok()
}

/// Tries until it works, or until it is clear that it does not.
fn patiently<T>(
    client: &Client,
    url: &str,
    once: impl Fn() -> Result<T, Fault>,
) -> Result<T, PullError> {
    let mut tries = Tries::new(client.patience);
    loop {
        match once() {
            Ok(answer) => return Ok(answer),
            Err(fault) => tries.wait(url, fault)?,
        }
    }
}
