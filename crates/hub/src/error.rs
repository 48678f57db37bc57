//! Why a model did not get here.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Not how models of the hub are named.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error(
    "`{0}` names no model of the hub; write owner/repo, owner/repo:QUANT or owner/repo@revision:QUANT"
)]
pub struct NameError(pub String);

/// A repository does not hold what was asked for, or holds it more than once.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ChooseError {
    /// No file of that quantisation.
    #[error("there is no `{quant}`; there is {}", .there.join(", "))]
    Unknown {
        /// What was asked for.
        quant: String,
        /// The quantisations that there are.
        there: Vec<String>,
    },
    /// Several files could be meant.
    #[error("several files could be meant; name one of {}", .there.join(", "))]
    Several {
        /// What would name each.
        there: Vec<String>,
    },
    /// A file in parts that are not all there.
    #[error("`{file}` has {of} parts of which {found} are there; all are needed")]
    Parts {
        /// The first part that is there.
        file: String,
        /// How many it has.
        of: usize,
        /// How many are there.
        found: usize,
    },
    /// Neither GGUF files nor a folder of safetensors.
    #[error(
        "it holds no GGUF file and no safetensors with a config.json; choose another repository"
    )]
    NoModel,
}

/// A model could not be fetched. What has arrived is kept and gone on with, the final name is not
/// taken.
#[derive(Debug, Error)]
pub enum PullError {
    /// The address of the hub, or of its proxy, is none.
    #[error("`{0}` is no address of a hub; write it as https://host")]
    Address(String),
    /// The hub wants to know who asks.
    #[error(
        "{repo} cannot be read without a token; check its name, or put a token of huggingface.co into HF_TOKEN"
    )]
    NoToken {
        /// The repository.
        repo: String,
    },
    /// The hub does not know the token.
    #[error("the hub refused the token; make another at huggingface.co/settings/tokens")]
    BadToken,
    /// Terms that have not been accepted.
    #[error("{repo} is gated; accept its terms at {page} with the account of your token")]
    Gated {
        /// The repository.
        repo: String,
        /// Where that is done.
        page: String,
    },
    /// No such repository, revision or file, as far as this account may know.
    #[error("{what} does not exist at {hub}; check the spelling, or that your token may read it")]
    Missing {
        /// The repository, or a part of it.
        what: String,
        /// The hub's address.
        hub: String,
    },
    /// Asked too often.
    #[error("the hub asks to wait {} s; try again then, or with a token", .after.as_secs())]
    Busy {
        /// How long.
        after: Duration,
    },
    /// Tried in vain as often as is sensible.
    #[error("{url}: {fault}; what has arrived is kept, so the same command goes on from there")]
    Cut {
        /// What was asked for.
        url: String,
        /// What went wrong the last time.
        fault: String,
    },
    /// An answer that nobody expects.
    #[error("{url} answered {what}; is this address a hub?")]
    Strange {
        /// What was asked for.
        url: String,
        /// What came.
        what: String,
    },
    /// From a safe connection to an unsafe one.
    #[error("{url} leads to the unencrypted {to}; refused")]
    Unsafe {
        /// What was asked for.
        url: String,
        /// Where it leads.
        to: String,
    },
    /// A file name that leaves the folder.
    #[error("{repo} holds a file called {file:?}, which would leave the cache; refused")]
    Path {
        /// The repository.
        repo: String,
        /// The name.
        file: String,
    },
    /// The file has another length than the hub says.
    #[error("{file} has {found} bytes where the hub says {expected}; try again later")]
    Length {
        /// The file.
        file: String,
        /// Bytes, as the hub says.
        expected: u64,
        /// Bytes, as the sender says.
        found: u64,
    },
    /// The bytes are not those that were published.
    #[error(
        "{file} arrived damaged (SHA-256 {found} in place of {expected}) and was thrown away; pull it again"
    )]
    Damaged {
        /// The file.
        file: String,
        /// The checksum that the hub gives.
        expected: String,
        /// That of what arrived.
        found: String,
    },
    /// The repository holds nothing of that kind.
    #[error("{repo}: {source}")]
    Choose {
        /// The repository.
        repo: String,
        /// Why.
        source: ChooseError,
    },
    /// The cache cannot be used.
    #[error("{}: {source}", .path.display())]
    Disk {
        /// A file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl PullError {
    /// Says which path a failure of the system belongs to.
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Disk { path, source }
    }
}
