//! How people name a model of the hub: `owner/repo`, with `@revision` and `:QUANT` where meant.

use std::fmt;
use std::str::FromStr;

use crate::error::NameError;

/// What a repository is called: two words that are safe as parts of paths and addresses.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RepoId {
    owner: String,
    repo: String,
}

/// The most bytes that either word has.
const LONGEST: usize = 96;

impl RepoId {
    /// Who it belongs to.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Its own name.
    pub fn repo(&self) -> &str {
        &self.repo
    }

    /// The folder of a cache that holds it.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}--{}", self.owner, self.repo)
    }

    /// The repository that a folder of a cache holds, if it holds one.
    pub(crate) fn of_folder(folder: &str) -> Option<Self> {
        let (owner, repo) = folder.strip_prefix("models--")?.split_once("--")?;
        format!("{owner}/{repo}").parse().ok()
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.repo)
    }
}

impl FromStr for RepoId {
    type Err = NameError;

    fn from_str(typed: &str) -> Result<Self, NameError> {
        let wrong = || NameError(typed.to_owned());
        let (owner, repo) = typed.split_once('/').ok_or_else(wrong)?;
        if !is_word(owner) || !is_word(repo) {
            return Err(wrong());
        }
        Ok(Self { owner: owner.to_owned(), repo: repo.to_owned() })
    }
}

/// The hub's own rule. `--` separates words in a cache, and `..` leaves a folder.
fn is_word(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ends = |c: char| c == '-' || c == '.';
    (1..=LONGEST).contains(&word.len())
        && word.chars().all(plain)
        && !word.starts_with(ends)
        && !word.ends_with(ends)
        && !word.contains("--")
        && !word.contains("..")
}

/// A model of the hub, as people type it: `owner/repo[@revision][:QUANT]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HubName {
    /// The repository.
    pub repo: RepoId,
    /// A branch, a tag or a commit.
    pub revision: String,
    /// Which file: a quantisation such as `Q4_K_M`, in either case, or a file's whole path.
    pub quant: Option<String>,
}

/// The branch that is meant where none is named.
const MAIN: &str = "main";

impl FromStr for HubName {
    type Err = NameError;

    fn from_str(typed: &str) -> Result<Self, NameError> {
        let (rest, quant) = match typed.split_once(':') {
            Some((rest, quant)) => (rest, Some(quant)),
            None => (typed, None),
        };
        let (repo, revision) = rest.split_once('@').unwrap_or((rest, MAIN));
        if !is_path(revision) || !quant.is_none_or(is_path) {
            return Err(NameError(typed.to_owned()));
        }
        let repo = repo.parse().map_err(|_| NameError(typed.to_owned()))?;
        Ok(Self { repo, revision: revision.to_owned(), quant: quant.map(str::to_owned) })
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repo)?;
        if self.revision != MAIN {
            write!(f, "@{}", self.revision)?;
        }
        self.quant.iter().try_for_each(|quant| write!(f, ":{quant}"))
    }
}

/// Whether a name stays inside the folder that it is taken to be in, on every system.
pub(crate) fn is_path(name: &str) -> bool {
    let inside = |part: &str| !part.is_empty() && part != "." && part != "..";
    let foreign = |c: char| c.is_control() || c == '\\' || c == ':';
    name.len() <= 1024 && name.split('/').all(inside) && !name.contains(foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_and_written_alike() {
        for typed in ["a/b", "google/gemma-3-270m-it:Q4_K_M", "a/b@v1:q8_0", "a/b@refs/pr/1"] {
            assert_eq!(typed.parse::<HubName>().expect(typed).to_string(), typed);
        }
    }

    #[test]
    fn what_could_leave_the_cache_is_no_name() {
        for typed in [
            "a",
            "a/b/c",
            "../b",
            "a/..",
            "a/.b",
            "/a/b",
            "a/b:",
            "a/b@",
            "a/b@../x",
            "a/b:../x.gguf",
            "a--x/b",
            "a/b--c",
            "a/b c",
            "a\\b/c",
            "./model.gguf",
            "a/b:/etc/passwd",
            "a/b@x\\y",
        ] {
            assert!(typed.parse::<HubName>().is_err(), "{typed}");
        }
    }
}
