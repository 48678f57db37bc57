//! `lapidary tokenize`: how a text is cut.

use lapidary_text::Control;
use serde_json::json;

use crate::args::TokenizeArgs;
use crate::failure::Failure;
use crate::model::{Text, find};
use crate::run::standard_input;

pub(crate) fn tokenize(args: &TokenizeArgs) -> Result<u8, Failure> {
    let text = Text::of(&find(args.model.model.as_deref())?)?;
    let written = args.text.clone().map_or_else(standard_input, Ok)?;
    let control = if args.special { Control::Honour } else { Control::Spell };
    let tokens = text.tokenizer.encode(&written, control);
    let spelled = |id| String::from_utf8_lossy(text.tokenizer.bytes(id)).into_owned();
    if args.json {
        let ids: Vec<_> = tokens.iter().map(|token| token.0).collect();
        let pieces: Vec<_> = tokens.iter().map(|token| spelled(*token)).collect();
        println!("{}", json!({ "token_ids": ids, "pieces": pieces }));
    } else {
        for token in tokens {
            println!("{:>8}  {:?}", token.0, spelled(token));
        }
    }
    Ok(0)
}
