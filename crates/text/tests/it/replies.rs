//! Replies taken apart, as Pebble's vocabulary writes them.

use lapidary_core::TokenId;
use lapidary_text::{Control, Reply, ReplyKind, ReplyStream, Tokenizer, ToolCall};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
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
        "<|tool_call>call:f{a:<|\"|>x<tool_call|> and on",
        "<|tool_call>call:f{a:}<tool_call|>, then call:g{}",
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
fn a_repeated_close_is_not_shown() {
    let Some(tokenizer) = support::pebble() else { return };
    for text in [
        "<|channel>thought\nhm<channel|><channel|>yes",
        "<|channel>thought\nhm\n<channel|>y<channel|>es",
        "<|channel>thought\nhm<channel|>yes<channel|>",
        "<channel|><|channel>thought\nhm<channel|>yes",
        "<|channel>thought\n<channel|><|channel>thought\nhm<channel|>yes",
        "<|channel><|channel>thought\nhm<channel|>yes",
    ] {
        let reply = reply(&tokenizer, text);
        assert_eq!((&*reply.reasoning, &*reply.content), ("hm", "yes"), "{text}");
    }
}

#[test]
fn an_empty_thought_does_not_leak_as_the_word_thought() {
    let Some(tokenizer) = support::pebble() else { return };
    for text in [
        "<|channel>thought\n<channel|>yes",
        "<|channel>thought<channel|>yes",
        "<|channel><channel|>yes",
        "thought\n<channel|>yes",
        "thought<channel|>yes",
        "yes",
    ] {
        let reply = reply(&tokenizer, text);
        assert_eq!((&*reply.reasoning, &*reply.content), ("", "yes"), "{text}");
    }
    for text in ["thought\nfully", "thoughtful", "thou", "thought"] {
        assert_eq!(reply(&tokenizer, text).content, text);
    }
}

#[test]
fn an_unfinished_thought_is_a_thought() {
    let Some(tokenizer) = support::pebble() else { return };
    for (text, reasoning) in [
        ("<|channel>thought\nso far", "so far"),
        ("<|channel>thought\nso far\n", "so far"),
        ("<|channel>thought\n", ""),
        ("<|channel>thought", ""),
        ("<|channel>", ""),
    ] {
        let reply = reply(&tokenizer, text);
        assert_eq!((&*reply.reasoning, &*reply.content), (reasoning, ""), "{text}");
    }
}

#[test]
fn a_call_survives_the_slips_that_models_make() {
    let Some(tokenizer) = support::pebble() else { return };
    for text in [
        "<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>",
        "<|tool_call>call:f{a:<|\"|>x<|\"|>}",
        "<|tool_call>call:f{a:x<|\"|>}<tool_call|>",
        "<|tool_call>call:f{<|\"|>a<|\"|>:<|\"|>x<|\"|>}<tool_call|>",
        "<|tool_call>call:f {a: <|\"|>x<|\"|> }<tool_call|>",
        "<|channel>thought\n<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>",
    ] {
        let reply = reply(&tokenizer, text);
        let calls: Vec<_> = reply.tool_calls.iter().map(|c| (&*c.name, &c.arguments)).collect();
        assert_eq!(calls, [("f", &json!({ "a": "x" }))], "{text}");
        assert_eq!((&*reply.reasoning, &*reply.content), ("", ""), "{text}");
    }
    let twice = "<|tool_call>call:f{}<|tool_call>call:g{}<tool_call|>";
    let names: Vec<_> = reply(&tokenizer, twice).tool_calls.into_iter().map(|c| c.name).collect();
    assert_eq!(names, ["f", "g"]);
}

#[test]
fn a_string_may_hold_the_token_that_closes_a_call() {
    let Some(tokenizer) = support::pebble() else { return };
    for inside in ["<tool_call|>", "<|tool_call>", "a<tool_call|>b", "<channel|>", "{},[]:\\\""] {
        let text = format!("<|tool_call>call:f{{a:<|\"|>{inside}<|\"|>}}<tool_call|>");
        let reply = reply(&tokenizer, &text);
        assert_eq!(reply.tool_calls.len(), 1, "{text}");
        assert_eq!(reply.tool_calls[0].arguments, json!({ "a": inside }));
    }
}

#[test]
fn a_label_that_the_prompt_has_begun_is_no_part_of_the_thought() {
    let Some(tokenizer) = support::pebble() else { return };
    for (begun, reply) in [
        ("<|channel>thought", "\na<channel|>b"),
        ("<|channel>thou", "ght\na<channel|>b"),
        ("<|channel>", "thought\na<channel|>b"),
        ("<|channel>thought\n", "a<channel|>b"),
        ("<|channel>thought\na", "\n<channel|>b"),
    ] {
        let prompt = tokenizer.encode(&format!("<|turn>model\n{begun}"), Control::Honour);
        let mut stream = ReplyStream::after(&prompt, &tokenizer);
        let mut read = Reply::default();
        for token in tokenizer.encode(reply, Control::Honour) {
            read.extend(stream.push(token, &tokenizer));
        }
        read.extend(stream.finish(&tokenizer));
        let thought = if begun.ends_with('a') { "" } else { "a" };
        assert_eq!((&*read.reasoning, &*read.content), (thought, "b"), "{begun} {reply}");
    }
}

#[test]
fn a_reply_goes_on_where_its_prompt_left_off() {
    let Some(tokenizer) = support::pebble() else { return };
    let open = "<bos><|turn>user\nhi<turn|>\n<|turn>model\n<|channel>thought\n";
    let closed = format!("{open}<channel|>");
    let after_result = "<|turn>model\n<|tool_call>call:f{}<tool_call|>\
                        <|tool_response>response:f{}<tool_response|><|channel>thought\n";
    let earlier_turn = format!("{open}<turn|>\n<|turn>user\nhi<turn|>\n<|turn>model\n");
    for (prompt, reasoning, content) in [
        (open, "a", "b"),
        (after_result, "a", "b"),
        (&*closed, "", "ab"),
        (&*earlier_turn, "", "ab"),
        ("<|turn>model\n", "", "ab"),
        ("<|turn>model\n<|channel>thought", "a", "b"),
        ("<|turn>model\n<|channel>", "a", "b"),
    ] {
        let prompt = tokenizer.encode(prompt, Control::Honour);
        let mut stream = ReplyStream::after(&prompt, &tokenizer);
        let mut reply = Reply::default();
        for token in tokenizer.encode("a<channel|>b", Control::Honour) {
            reply.extend(stream.push(token, &tokenizer));
        }
        reply.extend(stream.finish(&tokenizer));
        assert_eq!((&*reply.reasoning, &*reply.content), (reasoning, content));
    }
}

/// A stretch of a reply, as it is written and as it is meant.
#[derive(Clone, Debug)]
enum Stretch {
    Text(String),
    Thought(String),
    Call(String, String),
    Broken(String),
}

fn stretch() -> impl Strategy<Value = Stretch> {
    let words = "[a-zé🙂 .,{}:\n]{0,12}";
    prop_oneof![
        words.prop_map(Stretch::Text),
        words.prop_map(Stretch::Thought),
        ("[a-z_]{1,6}", words).prop_map(|(name, text)| Stretch::Call(name, text)),
        "[a-z,}]{0,5}".prop_map(Stretch::Broken),
    ]
}

/// Text as tokens that begin and end where `cuts` say, so that characters meet in many ways.
fn spell(tokenizer: &Tokenizer, text: &str, cuts: &mut impl FnMut() -> usize) -> Vec<TokenId> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.char_indices().nth(1 + cuts() % 4).map_or(rest.len(), |(at, _)| at);
        tokens.extend(tokenizer.encode(&rest[..at], Control::Spell));
        rest = &rest[at..];
    }
    tokens
}

/// The oracle is the list that the reply was written from.
#[test]
fn any_cut_of_a_reply_gives_its_parts() {
    let Some(tokenizer) = support::pebble() else { return };
    let cases = (prop::collection::vec(stretch(), 0..6), any::<u32>());
    let checked = TestRunner::default().run(&cases, |(stretches, mut cut)| {
        let mut cuts = || {
            cut = cut.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (cut >> 16) as usize
        };
        let special = |text: &str| tokenizer.encode(text, Control::Honour);
        let mut expected = Reply::default();
        let mut tokens = spell(&tokenizer, "So", &mut cuts);
        expected.content.push_str("So");
        for stretch in &stretches {
            match stretch {
                Stretch::Text(text) => {
                    tokens.extend(spell(&tokenizer, text, &mut cuts));
                    expected.content.push_str(text);
                }
                Stretch::Thought(text) => {
                    tokens.extend(special("<|channel>"));
                    tokens.extend(spell(&tokenizer, &format!("thought\n{text}"), &mut cuts));
                    tokens.extend(special("<channel|>"));
                    let said = text.strip_suffix('\n').unwrap_or(text);
                    if !said.is_empty() && !expected.reasoning.is_empty() {
                        expected.reasoning.push('\n');
                    }
                    expected.reasoning.push_str(said);
                }
                Stretch::Call(name, text) => {
                    tokens.extend(special("<|tool_call>"));
                    tokens.extend(spell(&tokenizer, &format!("call:{name}{{k.1:"), &mut cuts));
                    tokens.extend(special("<|\"|>"));
                    tokens.extend(spell(&tokenizer, text, &mut cuts));
                    tokens.extend(special("<|\"|>"));
                    tokens.extend(spell(&tokenizer, ",n:[1,{}]}", &mut cuts));
                    tokens.extend(special("<tool_call|>"));
                    let arguments = json!({ "k.1": text, "n": [1, {}] });
                    expected.tool_calls.push(ToolCall { id: None, name: name.clone(), arguments });
                }
                Stretch::Broken(text) => {
                    tokens.extend(special("<|tool_call>"));
                    tokens.extend(spell(&tokenizer, &format!("call:{text}"), &mut cuts));
                    tokens.extend(special("<tool_call|>"));
                    expected.content.push_str(&format!("<|tool_call>call:{text}<tool_call|>"));
                }
            }
        }
        prop_assert_eq!(Reply::of(&tokens, &tokenizer), expected);
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn any_tokens_at_all_come_apart_and_each_is_counted_once() {
    let Some(tokenizer) = support::pebble() else { return };
    let ids = prop::collection::vec(prop_oneof![0_u32..24, 0_u32..8192], 0..40);
    let checked = TestRunner::default().run(&ids, |ids| {
        let tokens: Vec<_> = ids.into_iter().map(TokenId).collect();
        let mut stream = ReplyStream::new(&tokenizer);
        let mut pieces: Vec<_> =
            tokens.iter().flat_map(|token| stream.push(*token, &tokenizer)).collect();
        pieces.extend(stream.finish(&tokenizer));
        prop_assert_eq!(pieces.iter().map(|piece| piece.tokens).sum::<usize>(), tokens.len());
        let content = |kind: &ReplyKind| matches!(kind, ReplyKind::Content(_));
        let marks = ["<|channel>", "<channel|>"].map(|mark| tokenizer.specials().token(mark));
        if !tokens.iter().any(|token| marks.contains(&Some(*token)))
            && pieces.iter().all(|piece| content(&piece.kind))
        {
            prop_assert_eq!(Reply::of(&tokens, &tokenizer).content, tokenizer.decode(&tokens));
        }
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}
