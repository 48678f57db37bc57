//! Entry points for fuzzing: any bytes may come in, and none may cause a panic. Each tells whether it
//! took what came in; what is refused is refused by name.

use lapidary_core::TensorSource;

use crate::bytes::Bytes;
use crate::folder::{Content, Texts};
use crate::saved::{FIXED, seal};
use crate::{Gguf, OpenError, decode_head, decode_section, encode_section, head_bytes};

/// What the bytes are called.
const ORIGIN: &str = "fuzz";

/// Opens the bytes as a GGUF file and, if that succeeds, reads everything in it.
pub fn gguf(data: &[u8]) -> bool {
    match Gguf::from_bytes(ORIGIN, data.to_vec()) {
        Ok(gguf) => {
            gguf.values().expect("the same bytes parse again");
            read_all(&gguf);
            true
        }
        Err(error) => refused(&error),
    }
}

/// Opens the bytes as a folder and, if that succeeds, reads everything in it. The first line is
/// `config.json`; the second is the shard index, or nothing if there is none; the rest is every
/// safetensors file.
pub fn folder(data: &[u8]) -> bool {
    let mut parts = data.splitn(3, |&byte| byte == b'\n');
    let (Some(config), Some(index), Some(shard)) = (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let (Ok(config), Ok(index)) = (str::from_utf8(config), str::from_utf8(index)) else {
        return false;
    };
    let texts = Texts { config, index: Some(index).filter(|index| !index.is_empty()) };
    let fetch = |_: &str| Ok::<_, OpenError>(Bytes::new(shard.to_vec()));
    match Content::gather(ORIGIN.to_owned(), &texts, fetch) {
        Ok(content) => {
            for name in content.tensors.names() {
                content.tensors.floats(ORIGIN, name).expect("an opened source can be read");
            }
            true
        }
        Err(error) => refused(&error),
    }
}

/// Reads the bytes as a saved section, as they are and with digests that fit, and writes the same
/// bytes again if that succeeds.
pub fn saved(data: &[u8]) -> bool {
    let readable = read_saved(data);
    let head = head_bytes(data).and_then(|head| usize::try_from(head).ok());
    if let Some(head) = head.filter(|head| (FIXED..=data.len()).contains(head)) {
        let mut sealed = data.to_vec();
        seal(&mut sealed, head);
        read_saved(&sealed);
    }
    readable
}

fn read_saved(data: &[u8]) -> bool {
    let binding = data.get(16..24).and_then(|word| word.first_chunk());
    let binding = binding.map_or(0, |word| u64::from_le_bytes(*word));
    let head = decode_head(binding, data, data.len() as u64);
    let Ok((whole, section)) = decode_section(binding, data) else { return false };
    assert_eq!(head.as_ref(), Ok(&whole), "the head is that of the file");
    assert_eq!(encode_section(binding, &whole, &section), data);
    true
}

/// Checks that an error names the file and, where one is at fault, the field.
fn refused(error: &OpenError) -> bool {
    let message = error.to_string();
    assert!(message.contains(ORIGIN), "the file is not named: {message}");
    if let OpenError::Malformed { field, .. } = error {
        assert!(!field.is_empty() && message.contains(field.as_str()), "no field: {message}");
    }
    false
}

fn read_all(source: &impl TensorSource) {
    for name in source.names() {
        let info = source.info(name).expect("a listed tensor has an info");
        let bytes = source.bytes(name).expect("a listed tensor has bytes");
        assert_eq!(bytes.len(), info.bytes());
        let floats = source.floats(name).expect("every block type has a decoder");
        assert_eq!(floats.len(), info.elements());
    }
}
