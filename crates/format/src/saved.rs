//! A section of a saved prefix as a file.
//!
//! ```text
//! offset 0   magic "LPDPREFX"
//!        8   u64 version
//!       16   u64 binding: which model, cache regime and layout
//!       24   u64 bytes of the head, up to the payload
//!       32   u64 bytes of the payload
//!       40   u64 digest of the payload
//!       48   u64 digest of the head without these eight bytes
//!       56   u64 key, u64 1 if there is a parent, u64 parent
//!       80   u32 from, u32 end, u32 floor, u32 layers
//!       96   u32 token, for each entry
//!            u32 first entry, u32 end, u64 bytes, for each layer
//!   payload  the bytes of each layer in turn
//! ```
//!
//! All numbers are little-endian. The head alone says whether a file is whole and whose it is; the
//! payload is looked at when it is needed.

use lapidary_core::{Kept, Section, TokenId};
use thiserror::Error;

use crate::digest::digest;

const MAGIC: &[u8; 8] = b"LPDPREFX";
const VERSION: u64 = 1;
/// Bytes before the key.
pub(crate) const FIXED: usize = 56;
/// Where the payload's digest stands.
const PAYLOAD_DIGEST: usize = 40;
/// Where the head's own digest stands.
const HEAD_DIGEST: usize = 48;
/// Bytes before the tokens.
const COUNTED: usize = 96;
/// Bytes that describe a layer.
const LAYER: usize = 16;

/// What is known about a saved section without reading its entries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SavedHead {
    /// Its name.
    pub key: u64,
    /// The name of the section that it continues.
    pub parent: Option<u64>,
    /// The tokens whose entries it holds, at least one.
    pub tokens: Vec<TokenId>,
    /// The first of the entries.
    pub from: u32,
    /// The least length at which a sequence can go on from it.
    pub floor: u32,
    /// Bytes of the payload.
    pub bytes: u64,
}

/// Why a file is no saved section of this model.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum SavedError {
    /// It does not begin like one.
    #[error("it is no saved prefix")]
    Magic,
    /// It was written by another version.
    #[error("it has version {0}, and this program reads version 1")]
    Version(u64),
    /// It belongs to another model, cache regime or device.
    #[error("it belongs to another model or cache regime")]
    Foreign,
    /// It is not as it was written.
    #[error("it is damaged or incomplete")]
    Damaged,
}

/// A section as a file's bytes.
///
/// # Panics
/// If the head does not describe the section.
pub fn encode_section(binding: u64, head: &SavedHead, section: &Section) -> Vec<u8> {
    let Section { from, end, floor, layers } = section;
    assert_eq!((head.from, head.floor), (*from, *floor), "the head is the section's");
    assert_eq!(head.tokens.len(), (end - from) as usize, "one token per entry");
    let head_bytes = COUNTED + 4 * head.tokens.len() + LAYER * layers.len();
    let mut bytes = Vec::with_capacity(head_bytes + section.bytes() as usize);
    bytes.extend_from_slice(MAGIC);
    for word in [VERSION, binding, head_bytes as u64, section.bytes(), 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for word in [head.key, u64::from(head.parent.is_some()), head.parent.unwrap_or(0)] {
        bytes.extend(word.to_le_bytes());
    }
    for word in [*from, *end, *floor, layers.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    head.tokens.iter().for_each(|token| bytes.extend(token.0.to_le_bytes()));
    for Kept { entries, bytes: kept } in layers {
        bytes.extend(entries.start.to_le_bytes());
        bytes.extend(entries.end.to_le_bytes());
        bytes.extend((kept.len() as u64).to_le_bytes());
    }
    layers.iter().for_each(|kept| bytes.extend_from_slice(&kept.bytes));
    seal(&mut bytes, head_bytes);
    bytes
}

/// Writes the digests of a head of this many bytes, at least [`FIXED`], and of what follows it.
pub(crate) fn seal(bytes: &mut [u8], head_bytes: usize) {
    let payload = digest(&bytes[head_bytes..]);
    bytes[PAYLOAD_DIGEST..HEAD_DIGEST].copy_from_slice(&payload.to_le_bytes());
    let own = head_digest(&bytes[..head_bytes]);
    bytes[HEAD_DIGEST..FIXED].copy_from_slice(&own.to_le_bytes());
}

/// Reads the head of a file of `size` bytes, of which `bytes` are the beginning: all of the head
/// or more.
///
/// # Errors
/// [`SavedError`]; a head that is not all there is damaged.
pub fn decode_head(binding: u64, bytes: &[u8], size: u64) -> Result<SavedHead, SavedError> {
    let head = whole_head(binding, bytes, size)?;
    let parts = Parts::of(head)?;
    Ok(parts.head)
}

/// Bytes of the head of a file that begins with these, if they are enough to tell.
pub fn head_bytes(bytes: &[u8]) -> Option<u64> {
    bytes.starts_with(MAGIC).then(|| word(bytes, 24)).flatten()
}

/// Reads a whole file.
///
/// # Errors
/// [`SavedError`].
pub fn decode_section(binding: u64, bytes: &[u8]) -> Result<(SavedHead, Section), SavedError> {
    let head = whole_head(binding, bytes, bytes.len() as u64)?;
    let payload = &bytes[head.len()..];
    if word(head, PAYLOAD_DIGEST) != Some(digest(payload)) {
        return Err(SavedError::Damaged);
    }
    let Parts { head, end, layers } = Parts::of(head)?;
    let (mut rest, mut all) = (payload, Vec::new());
    for (entries, len) in layers {
        let (kept, after) = rest.split_at_checked(len).ok_or(SavedError::Damaged)?;
        all.push(Kept { entries, bytes: kept.to_vec() });
        rest = after;
    }
    let section = Section { from: head.from, end, floor: head.floor, layers: all };
    if rest.is_empty() { Ok((head, section)) } else { Err(SavedError::Damaged) }
}

/// The head, whose digest is right, of a file that is as long as it says.
fn whole_head(binding: u64, bytes: &[u8], size: u64) -> Result<&[u8], SavedError> {
    let word = |at| word(bytes, at).ok_or(SavedError::Damaged);
    if !bytes.starts_with(MAGIC) {
        return Err(SavedError::Magic);
    }
    match (word(8)?, word(16)?) {
        (VERSION, own) if own == binding => {}
        (VERSION, _) => return Err(SavedError::Foreign),
        (version, _) => return Err(SavedError::Version(version)),
    }
    let (head, payload) = (word(24)?, word(32)?);
    let whole = head.checked_add(payload) == Some(size) && head >= COUNTED as u64;
    let head = usize::try_from(head).ok().filter(|_| whole).and_then(|head| bytes.get(..head));
    let head = head.ok_or(SavedError::Damaged)?;
    if word(HEAD_DIGEST)? == head_digest(head) { Ok(head) } else { Err(SavedError::Damaged) }
}

fn head_digest(head: &[u8]) -> u64 {
    digest(&[&head[..HEAD_DIGEST], &head[FIXED..]].concat())
}

/// What a head says.
struct Parts {
    head: SavedHead,
    end: u32,
    /// Entries and bytes of each layer.
    layers: Vec<(std::ops::Range<u32>, usize)>,
}

impl Parts {
    /// Takes a head of at least [`COUNTED`] bytes apart.
    fn of(head: &[u8]) -> Result<Self, SavedError> {
        let long = |at| word(head, at).ok_or(SavedError::Damaged);
        let short = |at| half(head, at).ok_or(SavedError::Damaged);
        let parent = match (long(64)?, long(72)?) {
            (0, 0) => None,
            (1, parent) => Some(parent),
            _ => return Err(SavedError::Damaged),
        };
        let (from, end, floor, layers) = (short(80)?, short(84)?, short(88)?, short(92)?);
        let entries = end.checked_sub(from).filter(|entries| *entries > 0);
        let entries = entries.ok_or(SavedError::Damaged)? as usize;
        let expected = COUNTED as u64 + 4 * entries as u64 + LAYER as u64 * u64::from(layers);
        if head.len() as u64 != expected {
            return Err(SavedError::Damaged);
        }
        let (tokens, described) = head[COUNTED..].split_at(4 * entries);
        let token = |bytes: &[u8; 4]| TokenId(u32::from_le_bytes(*bytes));
        let tokens = tokens.as_chunks().0.iter().map(token).collect();
        let layer = |of: &[u8; LAYER]| {
            let bytes = word(of, 8).and_then(|bytes| usize::try_from(bytes).ok());
            Some((half(of, 0)?..half(of, 4)?, bytes?))
        };
        let layers: Option<_> = described.as_chunks().0.iter().map(layer).collect();
        let layers = layers.ok_or(SavedError::Damaged)?;
        let head = SavedHead { key: long(56)?, parent, tokens, from, floor, bytes: long(32)? };
        Ok(Self { head, end, layers })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
