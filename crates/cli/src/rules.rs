//! From what was typed to what the text must look like.

use std::path::Path;
use std::sync::Arc;

use lapidary_core::Constraint;
use lapidary_text::{Grammars, Rules, Thinking, Tokenizer};

use crate::args::RulesArgs;
use crate::failure::Failure;

/// The grammar asked for, at the beginning of a reply.
pub(crate) fn grammar(
    args: &RulesArgs,
    tokenizer: &Tokenizer,
    thinking: Thinking,
) -> Result<Option<Arc<dyn Constraint>>, Failure> {
    let RulesArgs { json_schema, grammar, regex } = args;
    let compile = |rules: Rules<'_>| {
        let guide = Grammars::new(tokenizer).compile(rules, thinking);
        let guide = guide.map_err(|e| Failure::usage("grammar", e))?;
        Ok(Some(Arc::new(guide) as Arc<dyn Constraint>))
    };
    if let Some(schema) = json_schema {
        let text =
            if schema.trim_start().starts_with('{') { schema.clone() } else { read(schema)? };
        let value = serde_json::from_str(&text);
        let value = value.map_err(|e| {
            Failure::usage("grammar", format!("--json-schema is neither a file nor JSON: {e}"))
        })?;
        return compile(Rules::JsonSchema(&value));
    }
    if let Some(file) = grammar {
        let text = read(file)?;
        let gbnf = text.contains("::=");
        return compile(if gbnf { Rules::Gbnf(&text) } else { Rules::Lark(&text) });
    }
    if let Some(regex) = regex {
        return compile(Rules::Regex(regex));
    }
    Ok(None)
}

fn read(file: impl AsRef<Path>) -> Result<String, Failure> {
    let file = file.as_ref();
    std::fs::read_to_string(file)
        .map_err(|e| Failure::usage("grammar", format!("{}: {e}", file.display())))
}
