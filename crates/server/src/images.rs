//! Pictures in requests: taken out of their parts, decoded, looked at, remembered.
//!
//! A client sends a conversation's pictures again with every turn. What a tower made of one is kept
//! by the hash of its bytes, so that it is neither decoded nor looked at twice.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use lapidary_core::{Patches, TokenId};
use lapidary_engine::{Engine, LookError, Soft, SoftRows};
use lapidary_media::{Budget, Limits, decode, patches};
use lapidary_text::{Conversation, MediaKind, Tokenizer, make_room};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::error::ApiError;

/// Pictures whose soft tokens are kept.
const KEPT: usize = 64;
/// Numbers that they may have together: 256 MiB.
const KEPT_NUMBERS: usize = 64 << 20;

/// How a server reads pictures, and what it remembers of them.
pub struct Images {
    budget: Budget,
    limits: Limits,
    /// Held while a picture is unpacked: one may take half a gigabyte, and many may come at once.
    desk: Mutex<()>,
    seen: Mutex<Seen>,
}

impl Images {
    /// Reads each picture as at most `budget` soft tokens.
    pub fn new(budget: Budget) -> Self {
        Self { budget, limits: Limits::default(), desk: Mutex::default(), seen: Mutex::default() }
    }

    /// The soft tokens of a picture: remembered, or made by the engine.
    fn rows(&self, bytes: &[u8], engine: &Engine) -> Result<Arc<SoftRows>, ApiError> {
        let key: Key = Sha256::digest(bytes).into();
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = seen().get(key) {
            return Ok(rows);
        }
        let rows = engine.look(self.unpack(bytes)?).map_err(not_seen)?;
        let rows = Arc::new(rows);
        seen().put(key, rows.clone());
        Ok(rows)
    }

    fn unpack(&self, bytes: &[u8]) -> Result<Patches, ApiError> {
        let _desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let pixels = decode(bytes, &self.limits).map_err(|e| unreadable(e.to_string()))?;
        Ok(patches(&pixels, self.budget))
    }
}

/// Refuses what the model cannot look at or listen to.
pub(crate) fn refuse_others(chat: &Conversation, images: Option<&Images>) -> Result<(), ApiError> {
    let known = |kind| kind == MediaKind::Image && images.is_some();
    match chat.media().find(|(kind, _)| !known(*kind)) {
        None => Ok(()),
        Some((kind, _)) => {
            let word = kind.word();
            let others = if images.is_some() { "text and image parts" } else { "text parts" };
            let public = format!("this model takes no {word}; send {others} only");
            let error = ApiError::unsupported("messages", public);
            Err(ApiError { code: "unsupported_content", ..error })
        }
    }
}

/// Makes room for a conversation's pictures in its prompt, and fills it, as far as a context has room.
pub(crate) fn place(
    chat: &Conversation,
    tokens: Vec<TokenId>,
    context: u32,
    (images, engine, tokenizer): (Option<&Images>, &Engine, &Tokenizer),
) -> Result<(Vec<TokenId>, Vec<Soft>), ApiError> {
    let Some(images) = images.filter(|_| chat.media().next().is_some()) else {
        return Ok((tokens, Vec::new()));
    };
    let (mut rows, mut length) = (Vec::new(), tokens.len());
    for (n, (_, part)) in (1..).zip(chat.media()) {
        // Before the next one is unpacked: a body may bring more pictures than any memory holds.
        if length >= context as usize {
            return Err(ApiError::too_long(length, context));
        }
        let found = bytes(part).map_err(unreadable);
        let found = found.and_then(|bytes| images.rows(&bytes, engine));
        let located = |error: ApiError| {
            let public = format!("image {n}: {}", error.public);
            ApiError { param: Some("messages".to_owned()), public, ..error }
        };
        let found = found.map_err(located)?;
        length += found.count();
        rows.push(found);
    }
    let counts: Vec<_> = rows.iter().map(|rows| rows.count()).collect();
    let roomy = make_room(&tokens, tokenizer.specials(), &counts);
    let roomy = roomy.map_err(|e| ApiError::field("messages", e.to_string()))?;
    let soft = roomy.places.into_iter().zip(rows).map(|(range, rows)| Soft { range, rows });
    Ok((roomy.tokens, soft.collect()))
}

/// What a picture's part brings: OpenAI's data URL, or Anthropic's block.
fn bytes(part: &Map<String, Value>) -> Result<Vec<u8>, String> {
    if let Some(source) = part.get("source") {
        return match (source["type"].as_str(), source["data"].as_str()) {
            (Some("base64"), Some(data)) => base64(data),
            (Some("url"), _) => url(source["url"].as_str().unwrap_or_default()),
            _ => Err("`source` must be of type base64 with `data`".to_owned()),
        };
    }
    let address = part.get("image_url").or_else(|| part.get("url")).or_else(|| part.get("image"));
    let address = address.and_then(|address| address.as_str().or_else(|| address["url"].as_str()));
    match address {
        Some(address) => url(address),
        None => Err("the part holds none; give `image_url` a data: URL".to_owned()),
    }
}

fn url(address: &str) -> Result<Vec<u8>, String> {
    let Some(data) = address.strip_prefix("data:") else {
        let scheme = address.split(':').next().unwrap_or_default();
        let scheme: String = scheme.chars().take(16).collect();
        return Err(format!(
            "this server fetches nothing, so a {scheme}: address means nothing to it; send the \
             image itself as a data: URL (data:image/png;base64,…)"
        ));
    };
    match data.split_once(',') {
        Some((kind, data)) if kind.ends_with(";base64") => base64(data),
        _ => Err("a data: URL looks like data:image/png;base64,…".to_owned()),
    }
}

/// Decodes either alphabet, with or without padding; line breaks are passed over.
fn base64(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    let text = text.trim_end().trim_end_matches('=');
    for character in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return Err("its data is not base64; encode the file's bytes".to_owned()),
        };
        held = held << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    Ok(bytes)
}

fn unreadable(public: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_image", public)
}

fn not_seen(error: LookError) -> ApiError {
    match error {
        LookError::NoTower | LookError::Unseen(_) => unreadable(error.to_string()),
        LookError::Device(error) => ApiError::failed(error.to_string()),
        LookError::Down { reason } => {
            let public = "the engine has broken down and must be started anew";
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "engine_down", public);
            ApiError { private: Some(reason), ..error }
        }
    }
}

type Key = [u8; 32];

/// Soft tokens by the hash of what they were made of, the most recently used last.
#[derive(Default)]
struct Seen {
    entries: VecDeque<(Key, Arc<SoftRows>)>,
    numbers: usize,
}

impl Seen {
    fn get(&mut self, key: Key) -> Option<Arc<SoftRows>> {
        let found = self.entries.iter().position(|(own, _)| *own == key)?;
        let entry = self.entries.remove(found)?;
        let rows = entry.1.clone();
        self.entries.push_back(entry);
        Some(rows)
    }

    fn put(&mut self, key: Key, rows: Arc<SoftRows>) {
        if self.get(key).is_some() {
            return;
        }
        self.numbers += rows.values().len();
        self.entries.push_back((key, rows));
        while self.entries.len() > KEPT || self.numbers > KEPT_NUMBERS {
            let Some((_, gone)) = self.entries.pop_front() else { return };
            self.numbers -= gone.values().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_either_alphabet_is_read() {
        for (text, expected) in [
            ("", &b""[..]),
            ("TWFu", b"Man"),
            ("TWE=", b"Ma"),
            ("TWE", b"Ma"),
            ("TQ==", b"M"),
            ("TW\nFu\r\n", b"Man"),
            ("-_8", b"\xfb\xff"),
            ("+/8=", b"\xfb\xff"),
        ] {
            assert_eq!(base64(text).as_deref(), Ok(expected), "{text:?}");
        }
        assert!(base64("T*==").is_err());
    }

    #[test]
    fn every_clients_form_of_a_picture_is_read_and_addresses_are_not_fetched() {
        let part = |value: Value| bytes(value.as_object().expect("an object"));
        let data = "data:image/png;base64,TWFu";
        for form in [
            serde_json::json!({ "image_url": { "url": data, "detail": "low" } }),
            serde_json::json!({ "image_url": data }),
            serde_json::json!({ "url": data }),
            serde_json::json!({ "image": data }),
            serde_json::json!({ "source": { "type": "base64", "media_type": "x", "data": "TWFu" } }),
            serde_json::json!({ "source": { "type": "url", "url": data } }),
        ] {
            assert_eq!(part(form.clone()).as_deref(), Ok(&b"Man"[..]), "{form}");
        }
        for (form, expected) in [
            (
                serde_json::json!({ "image_url": { "url": "https://example.org/a.png" } }),
                "fetches nothing",
            ),
            (
                serde_json::json!({ "image_url": { "url": "file:///etc/passwd" } }),
                "a file: address",
            ),
            (
                serde_json::json!({ "source": { "type": "url", "url": "http://[::1]/" } }),
                "fetches nothing",
            ),
            (serde_json::json!({ "source": { "type": "file" } }), "base64"),
            (serde_json::json!({ "image_url": { "url": "data:image/png,abc" } }), "looks like"),
            (serde_json::json!({ "type": "image" }), "holds none"),
            (serde_json::json!({ "image_url": 7 }), "holds none"),
        ] {
            let refused = part(form.clone()).expect_err("it cannot be had");
            assert!(refused.contains(expected), "{form}: {refused}");
        }
    }

    #[test]
    fn the_pictures_used_last_are_remembered() {
        let mut seen = Seen::default();
        let key = |n: usize| [n as u8; 32];
        let rows = || Arc::new(SoftRows::new(vec![0.0; 4], 2));
        (0..KEPT).for_each(|n| seen.put(key(n), rows()));
        assert!(seen.get(key(0)).is_some());
        seen.put(key(KEPT), rows());
        assert!(seen.get(key(0)).is_some() && seen.get(key(1)).is_none());
        assert_eq!((seen.entries.len(), seen.numbers), (KEPT, 4 * KEPT));
        seen.put(key(200), Arc::new(SoftRows::new(vec![0.0; KEPT_NUMBERS], 2)));
        assert!(seen.entries.len() <= 1 && seen.numbers <= KEPT_NUMBERS);
    }
}
