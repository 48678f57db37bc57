//! Entry points for fuzzers: any bytes must give a value or an error, never a panic. Each
//! tells whether it took what came in.

use lapidary_core::{Constraint, TokenId, Value};

use crate::{ChatTemplate, Control, Conversation, Message, Part, Role, Specials, Tokenizer};
use crate::{Content, Grammars, MediaKind, ReplyStream, Rules, Thinking, ToolCall, normalise};
use crate::{TemplateError, TokenizerError};

/// Reads `data` as a `tokenizer.json` and uses what comes of it.
pub fn tokenizer_json(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    tokenizer(Tokenizer::from_json(&text, "<bos>", "<eos>"))
}

/// Reads GGUF metadata and uses what comes of it.
pub fn tokenizer_metadata(meta: &Value) -> bool {
    tokenizer(Tokenizer::from_metadata(meta))
}

fn tokenizer(read: Result<Tokenizer, TokenizerError>) -> bool {
    let tokenizer = match read {
        Ok(tokenizer) => tokenizer,
        Err(error) => return named(&error),
    };
    for control in [Control::Honour, Control::Spell] {
        let ids = tokenizer.encode("<bos>the <|turn>\n\n▁🙂", control);
        tokenizer.decode(&tokenizer.with_bos(&ids));
    }
    true
}

/// Checks that a refusal names the field, the token or the merge at fault.
fn named(error: &TokenizerError) -> bool {
    let message = error.to_string();
    let named = ["`", "token ", "merge "].iter().any(|name| message.contains(name));
    assert!(named, "nothing is named: {message}");
    false
}

/// Checks that a refusal of a template says where it fails, or how long it is.
fn placed(error: &TemplateError) -> bool {
    let placed = match error {
        TemplateError::Syntax(fault) => fault.line.is_some(),
        other => matches!(other, TemplateError::TooLong { .. }),
    };
    assert!(placed, "no place is named: {error}");
    false
}

/// Compiles `data` as a chat template and renders a conversation that has everything.
pub fn template(data: &[u8]) -> bool {
    let source = String::from_utf8_lossy(data);
    let names = ["<bos>", "<eos>", "<|turn>", "<turn|>", "<|\"|>"];
    let tokens = names.into_iter().map(str::to_owned).zip((0..).map(TokenId));
    let specials = Specials::new(tokens, ("<bos>", TokenId(0)), ("<eos>", TokenId(1)));
    let template = match ChatTemplate::with_fuel(&source, &specials, 100_000) {
        Ok(template) => template,
        Err(error) => return placed(&error),
    };
    let rendered = template.render(&everything());
    if let Ok(prompt) = &rendered {
        assert!(!prompt.text().contains('\u{fdd0}'), "marks stay inside");
    }
    rendered.is_ok()
}

/// Reads `data` as rules of every kind, and takes a few tokens under those that are any.
pub fn grammar(grammars: &Grammars, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let schema = serde_json::from_str(&text).ok();
    let schema = schema.iter().map(Rules::JsonSchema);
    let texts = [Rules::Gbnf(&text), Rules::Lark(&text), Rules::Regex(&text)];
    for rules in texts.into_iter().chain(schema) {
        let Ok(mut guide) = grammars.compile(rules, Thinking::Never) else { continue };
        for _ in 0..4 {
            let Ok(next) = guide.next() else { break };
            let Some(token) = (0..300).map(TokenId).find(|token| next.tokens.contains(*token))
            else {
                assert!(next.end, "a grammar that allows nothing is at its end");
                break;
            };
            guide.advance(token).expect("what is allowed can be taken");
        }
    }
}

/// Takes `data`, a token a byte, apart as a reply to a prompt of its own first bytes.
pub fn reply(tokenizer: &Tokenizer, data: &[u8]) {
    let tokens: Vec<_> = data.iter().map(|byte| TokenId(u32::from(*byte))).collect();
    let (prompt, reply) = tokens.split_at(tokens.len() / 4);
    let mut stream = ReplyStream::after(prompt, tokenizer);
    let mut counted = 0;
    for token in reply {
        counted += stream.push(*token, tokenizer).iter().map(|piece| piece.tokens).sum::<usize>();
    }
    counted += stream.finish(tokenizer).iter().map(|piece| piece.tokens).sum::<usize>();
    assert_eq!(counted, reply.len(), "every token is counted once");
}

/// Reads `data` as messages of a client, puts them right and renders them.
pub fn messages(template: &ChatTemplate, data: &[u8]) {
    let Ok(value) = serde_json::from_slice(data) else { return };
    let Ok(messages) = Message::list_from_json(&value) else { return };
    let mut chat = Conversation::new(messages);
    normalise(&mut chat);
    if let Ok(prompt) = template.render(&chat) {
        assert!(!prompt.text().contains('\u{fdd0}'), "marks stay inside");
    }
}

fn everything() -> Conversation {
    let mut parts = Message::empty(Role::User);
    let picture = Part::Media { kind: MediaKind::Image, source: serde_json::Map::new() };
    parts.content = Some(Content::Parts(vec![Part::Text("<|turn>".to_owned()), picture]));
    let mut call = Message::empty(Role::Assistant);
    let arguments = serde_json::json!({"<bos>": [1, 2.5, null, true, {"k": "<|\"|>"}]});
    call.tool_calls = vec![ToolCall { id: Some("1".to_owned()), name: "f".to_owned(), arguments }];
    let messages = vec![
        Message::new(Role::System, " be\nbrief "),
        parts,
        call,
        Message { tool_call_id: Some("1".to_owned()), ..Message::new(Role::Tool, "ok") },
        Message::new(Role::Assistant, "<|channel>thought\nhm<channel|>done"),
    ];
    let function = serde_json::json!({"name": "f", "description": "d", "parameters": {
        "type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}});
    let tools = vec![serde_json::json!({"type": "function", "function": function})];
    Conversation { tools, enable_thinking: true, ..Conversation::new(messages) }
}
