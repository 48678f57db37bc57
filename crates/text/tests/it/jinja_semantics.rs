//! Templates mean what they mean to the reference implementation.

use lapidary_text::{ChatTemplate, Conversation, Message, Role};
use serde_json::Value as Json;

use crate::support::specials;

/// Expected texts were rendered by Jinja2 as Transformers configures it, with `v` as given.
#[test]
fn stored_snippets_render_alike() {
    let cases: Vec<Json> =
        serde_json::from_str(include_str!("data/jinja_snippets.json")).expect("they are JSON");
    let differing: Vec<String> = cases.iter().filter_map(difference).collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// How a snippet renders if not as stored.
fn difference(case: &Json) -> Option<String> {
    let source = case["source"].as_str().expect("a source is text");
    let mut chat = Conversation::new(vec![Message::new(Role::User, "hi")]);
    chat.extra.insert("v".to_owned(), case["v"].clone());
    let template = ChatTemplate::new(source, &specials());
    let rendered = template.and_then(|template| template.render(&chat));
    let rendered = rendered.map(|prompt| prompt.text());
    let expected = case["rendered"].as_str();
    (rendered.as_deref().ok() != expected)
        .then(|| format!("{source}\n  gives {rendered:?}\n  not   {expected:?}"))
}
