//! Bytes in, whole characters out.

/// Turns the bytes of tokens into text as they arrive, never splitting a character.
///
/// Law: however the bytes are cut, the pieces of text joined are those of
/// [`String::from_utf8_lossy`] over all of them.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// The beginning of a character: at most three bytes.
    pending: Vec<u8>,
}

impl TextStream {
    /// The text that `bytes` completes. A broken sequence becomes a replacement character.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut text = String::new();
        self.pending.extend_from_slice(bytes);
        let mut chunks = self.pending.utf8_chunks().peekable();
        let mut unfinished = Vec::new();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            if chunk.invalid().is_empty() {
                continue;
            }
            if chunks.peek().is_none() && may_continue(chunk.invalid()) {
                unfinished = chunk.invalid().to_vec();
            } else {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.pending = unfinished;
        text
    }

    /// A replacement character if a character was left unfinished, else nothing.
    pub fn finish(self) -> String {
        if self.pending.is_empty() { String::new() } else { char::REPLACEMENT_CHARACTER.into() }
    }
}

/// Whether more bytes could make a character of these.
fn may_continue(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|err| err.error_len().is_none())
}
