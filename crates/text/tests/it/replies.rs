//! Replies taken apart, as Pebble's vocabulary writes them.

use lapidary_core::TokenId;
use lapidary_text::{Control, Reply, Tokenizer};
use serde_json::json;

use crate::support;

fn reply(tokenizer: &Tokenizer, text: &str) -> Reply {
    Reply::of(&tokenizer.encode(text, Control::Honour), tokenizer)
}

#[test]
fn plain_text_is_content() {
    let Some(tokenizer) = support::pebble() else { return };
    let text = "The capital of Mongolia is Ulaanbaatar.";
    assert_eq!(reply(&tokenizer, text), Reply { content: text.into(), ..Reply::default() });
}

#[test]
fn thoughts_text_and_calls_come_apart() {
    let Some(tokenizer) = support::pebble() else { return };
    let text = "<|channel>thought\nfirst\n<channel|>Let me look. \
                <|tool_call>call:get_weather{city:<|\"|>La Paz<|\"|>,days:2}<tool_call|>\
                <|channel>thought\nsecond<channel|>";
    let reply = reply(&tokenizer, text);
    assert_eq!(reply.reasoning, "first\nsecond");
    assert_eq!(reply.content, "Let me look. ");
    assert_eq!(reply.tool_calls.len(), 1);
    assert_eq!(reply.tool_calls[0].name, "get_weather");
    assert_eq!(reply.tool_calls[0].arguments, json!({ "city": "La Paz", "days": 2 }));
}

#[test]
fn a_malformed_or_unfinished_call_comes_back_as_text() {
    let Some(tokenizer) = support::pebble() else { return };
    for text in [
        "<|tool_call>call:get_weather{city:<tool_call|>",
        "<|tool_call>call:get_weather{city:<|\"|>La Paz",
        "a <|tool_call>b<tool_call|> c",
        "<|channel>analysis\nx<channel|>",
        "<channel|>late",
    ] {
        let reply = reply(&tokenizer, text);
        assert_eq!(reply.content, text);
        assert!(reply.tool_calls.is_empty() && reply.reasoning.is_empty());
    }
}

#[test]
fn a_literal_tool_call_in_prose_does_not_truncate_the_answer() {
    let Some(tokenizer) = support::pebble() else { return };
    let text = "Write <|tool_call>call:f{}<tool_call|> to call.";
    let spelled = Reply::of(&tokenizer.encode(text, Control::Spell), &tokenizer);
    assert_eq!(spelled, Reply { content: text.into(), ..Reply::default() });
}

#[test]
fn any_tokens_at_all_come_apart_without_a_panic_and_without_loss_of_text() {
    let Some(tokenizer) = support::pebble() else { return };
    let mut state = 1_u32;
    for _ in 0..3_000 {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        let token = |n: u32| if n.is_multiple_of(3) { TokenId(n % 24) } else { TokenId(n % 8192) };
        let tokens: Vec<_> = (0..next() % 40).map(|_| token(next())).collect();
        let reply = Reply::of(&tokens, &tokenizer);
        let structured = !reply.reasoning.is_empty() || !reply.tool_calls.is_empty();
        assert!(structured || reply.content == tokenizer.decode(&tokens), "{tokens:?}");
    }
}
