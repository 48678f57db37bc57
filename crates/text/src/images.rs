//! Room for pictures in a prompt: each placeholder becomes as many as the picture has soft tokens,
//! between two marks.

use std::ops::Range;

use lapidary_core::TokenId;
use thiserror::Error;

use crate::specials::Specials;

/// Stands for a picture in what a template writes, and for each of its soft tokens afterwards.
const PLACEHOLDER: &str = "<|image|>";
/// Before a picture's soft tokens.
const BEGIN: &str = "<|image>";
/// After them.
const END: &str = "<image|>";

/// A prompt with room for its pictures.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WithImages {
    /// The prompt.
    pub tokens: Vec<TokenId>,
    /// Where each picture's soft tokens go, in the order of the pictures.
    pub places: Vec<Range<usize>>,
}

/// Pictures find no room in a prompt.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum NoRoomForImages {
    /// The vocabulary has no tokens for pictures.
    #[error("the model's vocabulary has no image tokens: leave the images out")]
    Vocabulary,
    /// There are more or fewer placeholders than pictures.
    #[error(
        "the prompt has {placeholders} image placeholders for {images} images: write `<|image|>` once for each, or use a chat template that does"
    )]
    Count {
        /// Placeholders found.
        placeholders: usize,
        /// Pictures given.
        images: usize,
    },
}

/// Makes room for pictures of which each has `counts[i]` soft tokens.
///
/// # Errors
/// The vocabulary knows no pictures, or the placeholders are not as many as they.
pub fn make_room(
    tokens: &[TokenId],
    specials: &Specials,
    counts: &[usize],
) -> Result<WithImages, NoRoomForImages> {
    let special = |text| specials.token(text).ok_or(NoRoomForImages::Vocabulary);
    let (placeholder, begin, end) = (special(PLACEHOLDER)?, special(BEGIN)?, special(END)?);
    let placeholders = tokens.iter().filter(|token| **token == placeholder).count();
    if placeholders != counts.len() {
        return Err(NoRoomForImages::Count { placeholders, images: counts.len() });
    }
    let mut counts = counts.iter();
    let (mut roomy, mut places) = (Vec::with_capacity(tokens.len()), Vec::new());
    for &token in tokens {
        match counts.as_slice() {
            [count, ..] if token == placeholder => {
                counts.next();
                roomy.push(begin);
                places.push(roomy.len()..roomy.len() + count);
                roomy.resize(roomy.len() + count, placeholder);
                roomy.push(end);
            }
            _ => roomy.push(token),
        }
    }
    Ok(WithImages { tokens: roomy, places })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specials(spellings: &[&str]) -> Specials {
        let tokens = spellings.iter().map(|text| (*text).to_owned()).zip((10..).map(TokenId));
        Specials::new(tokens, ("<bos>", TokenId(1)), ("<eos>", TokenId(2)))
    }

    #[test]
    fn a_placeholder_becomes_as_many_as_the_picture_has_tokens_between_marks() {
        let specials = specials(&[PLACEHOLDER, BEGIN, END]);
        let tokens = [1, 10, 5, 10].map(TokenId);
        let roomy = make_room(&tokens, &specials, &[3, 1]).expect("two for two");
        assert_eq!(roomy.tokens, [1, 11, 10, 10, 10, 12, 5, 11, 10, 12].map(TokenId));
        assert_eq!(roomy.places, [2..5, 8..9]);
    }

    #[test]
    fn as_many_pictures_as_placeholders_or_none_at_all() {
        let known = specials(&[PLACEHOLDER, BEGIN, END]);
        let one = [1, 10].map(TokenId);
        let count = |placeholders, images| Err(NoRoomForImages::Count { placeholders, images });
        assert_eq!(make_room(&one, &known, &[]), count(1, 0));
        assert_eq!(make_room(&one, &known, &[4, 4]), count(1, 2));
        let unknown = specials(&[PLACEHOLDER]);
        assert_eq!(make_room(&one, &unknown, &[4]), Err(NoRoomForImages::Vocabulary));
    }
}
