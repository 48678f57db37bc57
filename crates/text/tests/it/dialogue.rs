//! A conversation that goes on keeps what was said, in order, and gives up only what it must.

use std::convert::Infallible;

use lapidary_core::TokenId;
use lapidary_text::{
    Conversation, Dialogue, DialogueError, Fitted, Message, Overflow, Reply, Role, ToolCall, Unfit,
};
use proptest::prelude::*;
use serde_json::json;

fn say(text: &str) -> Reply {
    Reply { content: text.to_owned(), ..Reply::default() }
}

fn call(name: &str) -> ToolCall {
    ToolCall { id: None, name: name.to_owned(), arguments: json!({ "city": "La Paz" }) }
}

/// One token for every message.
fn count(chat: &Conversation) -> Result<Vec<TokenId>, Infallible> {
    Ok(chat.messages.iter().map(|_| TokenId(0)).collect())
}

fn turns(n: usize) -> Dialogue {
    let mut dialogue = Dialogue::new(Some("be brief".to_owned()), Vec::new());
    for i in 0..n {
        dialogue.ask(format!("question {i}"));
        dialogue.answer(say(&format!("answer {i}")));
    }
    dialogue
}

fn roles(chat: &Conversation) -> Vec<Role> {
    chat.messages.iter().map(|message| message.role).collect()
}

#[test]
fn the_oldest_turns_go_first_and_the_system_text_stays() {
    let mut dialogue = turns(5);
    dialogue.ask("last");
    let fitted = dialogue.fit(Overflow::DropOldest, 6, count);
    assert_eq!(fitted, Ok(Fitted { prompt: vec![TokenId(0); 6], dropped: 3 }));
    let chat = dialogue.conversation();
    assert_eq!(chat.messages[0], Message::new(Role::System, "be brief"));
    assert_eq!(chat.messages[1], Message::new(Role::User, "question 3"));
    assert_eq!(chat.messages[5], Message::new(Role::User, "last"));
}

#[test]
fn what_cannot_fit_loses_nothing() {
    let mut dialogue = turns(3);
    let before = dialogue.clone();
    let stopped = dialogue.fit(Overflow::Stop, 5, count);
    assert_eq!(stopped, Err(Unfit::TooLong { tokens: 7, room: 5 }));
    let last_alone = dialogue.fit(Overflow::DropOldest, 2, count);
    assert_eq!(last_alone, Err(Unfit::TooLong { tokens: 3, room: 2 }));
    assert_eq!(dialogue, before);
    assert_eq!(dialogue.fit(Overflow::Stop, 7, count).map(|fitted| fitted.dropped), Ok(0));
}

#[test]
fn results_answer_calls_in_order() {
    let mut dialogue = Dialogue::default();
    dialogue.ask("weather?");
    dialogue.answer(Reply { tool_calls: vec![call("a"), call("b")], ..Reply::default() });
    for name in ["a", "b"] {
        assert_eq!(dialogue.awaited().map(|call| call.name.as_str()), Some(name));
        dialogue.result("sunny");
    }
    assert_eq!(dialogue.awaited(), None);
    dialogue.result("nobody asked");
    let chat = dialogue.conversation();
    assert_eq!(roles(&chat), [Role::User, Role::Assistant, Role::Tool, Role::Tool]);
    assert_eq!(chat.messages[3].name.as_deref(), Some("b"));
    assert_eq!(chat.messages[3].tool_call_id.as_deref(), Some("call_2"));
}

#[test]
fn an_answer_can_be_asked_for_again() {
    let mut dialogue = turns(2);
    assert!(dialogue.reopen());
    let waiting = [Role::System, Role::User, Role::Assistant, Role::User];
    assert_eq!(roles(&dialogue.conversation()), waiting);
    assert!(!dialogue.reopen());
    assert_eq!(roles(&dialogue.conversation()), waiting);
    assert!(!Dialogue::default().reopen());
}

#[test]
fn an_answer_after_a_tool_is_asked_for_again_without_asking_the_tool() {
    let mut dialogue = Dialogue::default();
    dialogue.ask("weather?");
    dialogue.answer(Reply { tool_calls: vec![call("a")], ..Reply::default() });
    dialogue.result("sunny");
    dialogue.answer(say("It is sunny."));
    assert!(dialogue.reopen());
    assert_eq!(roles(&dialogue.conversation()), [Role::User, Role::Assistant, Role::Tool]);
}

#[test]
fn turns_are_taken_back_whole() {
    let mut dialogue = turns(2);
    assert!(dialogue.undo() && dialogue.undo() && !dialogue.undo());
    assert_eq!(roles(&dialogue.conversation()), [Role::System]);
}

#[test]
fn a_file_that_is_no_conversation_is_refused_by_name() {
    let refused = |value| Dialogue::from_json(&value).expect_err("it is refused").to_string();
    let shape = "the conversation must be an object with `messages`, or a list of messages";
    assert_eq!(refused(json!({})), shape);
    assert_eq!(refused(json!(7)), shape);
    assert_eq!(refused(json!({ "messages": [], "tools": 1 })), "tools must be a list");
    let role = refused(json!([{ "role": "king", "content": "" }]));
    assert!(role.starts_with("messages[0].role is \"king\""), "{role}");
    let error = Dialogue::from_json(&json!({ "messages": 1 }));
    assert!(matches!(error, Err(DialogueError::Message(_))));
}

fn reply() -> impl Strategy<Value = Reply> {
    let calls = prop::collection::vec("[a-z]{1,4}", 0..3);
    (".{0,12}", ".{0,12}", calls).prop_map(|(content, reasoning, calls)| Reply {
        content,
        reasoning,
        tool_calls: calls.iter().map(|name| call(name)).collect(),
    })
}

proptest! {
    #[test]
    fn a_saved_conversation_loads_as_it_was(
        system in prop::option::of(".{0,8}"),
        said in prop::collection::vec((".{0,20}", reply(), ".{0,8}"), 0..5),
    ) {
        let mut dialogue = Dialogue::new(system, vec![json!({ "type": "function" })]);
        for (question, reply, result) in said {
            dialogue.ask(question);
            dialogue.answer(reply);
            while dialogue.awaited().is_some() {
                dialogue.result(result.clone());
            }
        }
        let text = dialogue.to_json().to_string();
        let value = serde_json::from_str(&text).expect("it was just written");
        prop_assert_eq!(Dialogue::from_json(&value).expect("it was just written"), dialogue);
    }
}
