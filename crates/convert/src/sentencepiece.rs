//! The pieces of a SentencePiece file: protocol buffers, of which only field 1 matters.

use crate::vocabulary::{Kind, Token};

/// Every piece in order; `None` if the bytes are no such file.
pub(crate) fn pieces(bytes: &[u8]) -> Option<Vec<Token>> {
    const PIECE: u64 = 1;
    let mut pieces = Vec::new();
    let mut left = bytes;
    while !left.is_empty() {
        if let (PIECE, Field::Bytes(piece)) = field(&mut left)? {
            pieces.push(token(piece)?);
        }
    }
    (!pieces.is_empty()).then_some(pieces)
}

fn token(piece: &[u8]) -> Option<Token> {
    let mut token = Token { text: String::new(), score: 0.0, kind: Kind::Normal };
    let mut left = piece;
    while !left.is_empty() {
        match field(&mut left)? {
            (1, Field::Bytes(text)) => token.text = String::from_utf8(text.to_vec()).ok()?,
            (2, Field::Four(bits)) => token.score = f32::from_bits(bits),
            (3, Field::Number(kind)) => token.kind = self::kind(kind)?,
            _ => {}
        }
    }
    Some(token)
}

fn kind(number: u64) -> Option<Kind> {
    Some(match number {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => return None,
    })
}

/// What a field holds.
enum Field<'a> {
    Number(u64),
    Eight,
    Bytes(&'a [u8]),
    Four(u32),
}

/// Takes one field with its number from the front.
fn field<'a>(from: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let tag = varint(from)?;
    let value = match tag & 7 {
        0 => Field::Number(varint(from)?),
        1 => {
            take(from, 8)?;
            Field::Eight
        }
        2 => {
            let len = usize::try_from(varint(from)?).ok()?;
            Field::Bytes(take(from, len)?)
        }
        5 => Field::Four(u32::from_le_bytes(take(from, 4)?.try_into().ok()?)),
        _ => return None,
    };
    Some((tag >> 3, value))
}

fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *take(from, 1)?.first()?;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(from: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(taken)
}
