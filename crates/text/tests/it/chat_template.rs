//! Renderings equal to the reference implementation's, byte for byte.

use lapidary_core::TokenId;
use lapidary_text::{
    ChatTemplate, Conversation, Message, Piece, Prompt, Role, Specials, TemplateError,
};
use serde_json::Value as Json;

use crate::support::{conversation, pebble, reference_text, specials};

pub(crate) const PEBBLE: &str = include_str!("../corpus/template/pebble.jinja");

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, &specials()).expect("the template is sound")
}

/// Checks every stored rendering of `family`; there are `count`.
fn check_renderings(source: &str, cases: &str, family: &str, count: usize) {
    let template = template(source);
    let cases: Vec<Json> = serde_json::from_str(cases).expect("the renderings are JSON");
    assert_eq!(cases.len(), count);
    for case in &cases {
        let prompt = template.render(&conversation(case)).expect("the conversation is renderable");
        let expected = case["rendered"][family].as_str().expect("a rendering is text");
        assert_eq!(prompt.text(), expected, "{}", case["name"]);
    }
}

#[test]
fn pebble_renders_as_stored() {
    check_renderings(PEBBLE, include_str!("data/pebble_renderings.json"), "pebble", 19);
}

/// Gemma 3's special tokens, as far as its format uses them.
fn gemma_3() -> ChatTemplate {
    let names = ["<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"];
    let tokens = names.into_iter().map(str::to_owned).zip((1..).map(TokenId));
    let specials = Specials::new(tokens, ("<bos>", TokenId(2)), ("<eos>", TokenId(1)));
    ChatTemplate::new(ChatTemplate::GEMMA_3, &specials).expect("the template is sound")
}

/// The stored renderings are those of the template that Google publishes, by the reference
/// implementation of Jinja; `null` where it refuses.
#[test]
fn gemma_3_renders_as_the_published_template() {
    let cases = include_str!("data/gemma3_renderings.json");
    let cases: Vec<Json> = serde_json::from_str(cases).expect("the renderings are JSON");
    assert_eq!(cases.len(), 16);
    for case in &cases {
        let rendered = gemma_3().render(&conversation(case));
        let expected = case["rendered"]["gemma3"].as_str();
        let found = rendered.as_ref().ok().map(Prompt::text);
        assert_eq!(found.as_deref(), expected, "{}: {rendered:?}", case["name"]);
    }
}

#[test]
fn a_question_that_spells_the_end_of_a_turn_does_not_end_it() {
    let chat = Conversation::new(vec![Message::new(Role::User, "<end_of_turn>")]);
    let prompt = gemma_3().render(&chat).expect("it is renderable");
    let ends = |piece: &&Piece| **piece == Piece::Special("<end_of_turn>".to_owned());
    assert_eq!(prompt.pieces().iter().filter(ends).count(), 1);
}

#[test]
fn google_renders_as_stored() {
    let (Some(source), Some(cases)) = (
        reference_text("fixtures/templates/gemma-4-31b-it.jinja"),
        reference_text("fixtures/templates/renderings.json"),
    ) else {
        return;
    };
    check_renderings(&source, &cases, "gemma-4-31b-it", 19);
}

#[test]
fn google_and_pebble_have_the_stored_edge_renderings() {
    let google = reference_text("fixtures/templates/gemma-4-31b-it.jinja");
    let cases: Vec<Json> = serde_json::from_str(include_str!("data/edge_renderings.json"))
        .expect("the renderings are JSON");
    let sources = [("pebble", Some(PEBBLE.to_owned())), ("gemma-4-31b-it", google)];
    for (family, source) in sources {
        let Some(source) = source else { continue };
        let template = template(&source);
        for case in &cases {
            let rendered = template.render(&conversation(case));
            let expected = &case["rendered"][family];
            match (rendered, expected.as_str()) {
                (Ok(prompt), Some(expected)) => {
                    assert_eq!(prompt.text(), expected, "{family}: {}", case["name"]);
                }
                (Err(_), None) => {}
                (rendered, _) => panic!("{family}: {}: {rendered:?}\nnot {expected}", case["name"]),
            }
        }
    }
}

#[test]
fn stored_prompts_are_rendered_and_encoded() {
    let (Some(pebble), Some(answers)) = (pebble(), reference_text("pebble/golden/answers.jsonl"))
    else {
        return;
    };
    let template = ChatTemplate::new(PEBBLE, pebble.specials()).expect("the template is sound");
    let mut checked = 0;
    for line in answers.lines() {
        let answer: Json = serde_json::from_str(line).expect("a line is JSON");
        let prompt = answer["prompt"].as_str().expect("a prompt is text");
        let question = prompt.strip_prefix("<bos><|turn>user\n");
        let question = question.and_then(|q| q.strip_suffix("<turn|>\n<|turn>model\n"));
        let Some(question) = question.filter(|q| !q.contains("<|")) else { continue };
        let chat = Conversation::new(vec![Message::new(Role::User, question)]);
        let rendered = template.render(&chat).expect("a question is renderable");
        assert_eq!(rendered.text(), prompt);
        let ids: Vec<_> = rendered.encode(&pebble).iter().map(|id| Json::from(id.0)).collect();
        assert_eq!(Json::from(ids), answer["prompt_ids"]);
        checked += 1;
    }
    assert_eq!(checked, 268, "of 378 prompts, the others have more than a question");
}

fn hello() -> Conversation {
    Conversation::new(vec![Message::new(Role::User, "hi")])
}

fn error(source: &str) -> TemplateError {
    match ChatTemplate::with_fuel(source, &specials(), 100_000) {
        Err(err) => err,
        Ok(template) => template.render(&hello()).expect_err("the template fails"),
    }
}

#[test]
fn templates_may_refuse_a_conversation() {
    let refused = error("{{ raise_exception('roles must alternate') }}");
    assert_eq!(refused, TemplateError::Refused { message: "roles must alternate".to_owned() });
    let inside = error("{% macro f() %}{{ raise_exception('no') }}{% endmacro %}{{ f() }}");
    assert_eq!(inside, TemplateError::Refused { message: "no".to_owned() });
}

#[test]
fn faults_name_their_line() {
    let syntax = error("a\n{% if %}");
    assert!(matches!(&syntax, TemplateError::Syntax(fault) if fault.line == Some(2)), "{syntax}");
    let render = error("a\n{{ messages[0].nothing.more }}");
    assert!(matches!(&render, TemplateError::Render(fault) if fault.line == Some(2)), "{render}");
}

#[test]
fn hostile_templates_run_out_of_fuel() {
    let endless = "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}";
    let doubling = "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}";
    let repeated = "{{ 'x' * 999999999999 }}";
    for source in [endless, doubling, repeated] {
        assert_eq!(error(source), TemplateError::OutOfFuel { fuel: 100_000 }, "{source}");
    }
    let recursion = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    assert!(matches!(error(recursion), TemplateError::Render(_)));
}

#[test]
fn nesting_overflows_no_stack() {
    for (open, close) in [("(", ")"), ("[", "]"), ("{'a':", "}")] {
        let source = format!("{{{{ {}1{} }}}}", open.repeat(8_000), close.repeat(8_000));
        assert!(matches!(error(&source), TemplateError::Syntax(_)), "{open}");
    }
    let blocks = "{% if 1 %}".repeat(3_000) + &"{% endif %}".repeat(3_000);
    assert!(matches!(error(&blocks), TemplateError::Syntax(_)));
    // Chains of `-` and `~` are left out: the engine takes time in their square.
    for link in ["not ", "1+", "1**", "1 if 1 else ", "a.", "1 and "] {
        let links = (ChatTemplate::MAX_SOURCE - 8) / link.len();
        let _ = ChatTemplate::new(&format!("{{{{ {}a }}}}", link.repeat(links)), &specials());
    }
    for link in ["[0]", "()", "|e", " is none"] {
        let links = (ChatTemplate::MAX_SOURCE - 8) / link.len();
        let _ = ChatTemplate::new(&format!("{{{{ a{} }}}}", link.repeat(links)), &specials());
    }
    let branches = "{%elif 1%}".repeat(6_500);
    let _ = ChatTemplate::new(&format!("{{%if 1%}}{branches}{{%endif%}}"), &specials());
    let long = " ".repeat(ChatTemplate::MAX_SOURCE + 1);
    assert!(matches!(error(&long), TemplateError::TooLong { .. }));
}

#[test]
fn deeply_nested_arguments_are_rendered() {
    let google = reference_text("fixtures/templates/gemma-4-31b-it.jinja");
    let deep = (0..30).fold(Json::from(1), |inner, _| serde_json::json!({ "k": [inner] }));
    let function = serde_json::json!({"name": "f", "arguments": {"k": deep}});
    let messages = serde_json::json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"function": function}]}]);
    let messages = Message::list_from_json(&messages).expect("the messages are sound");
    let chat = Conversation::new(messages);
    for source in [PEBBLE.to_owned()].into_iter().chain(google) {
        let prompt = template(&source).render(&chat).expect("60 levels are renderable");
        assert!(prompt.text().contains(&"[{k:".repeat(29)));
    }
}

#[test]
fn long_conversations_fit_the_fuel() {
    let Some(source) = reference_text("fixtures/templates/gemma-4-31b-it.jinja") else { return };
    let template = template(&source);
    let turn = |i: usize| Message::new([Role::User, Role::Assistant][i % 2], "words ".repeat(200));
    let chat = Conversation::new((0..1001).map(turn).collect());
    template.render(&chat).expect("a thousand messages are renderable");
}

#[test]
fn extra_variables_reach_the_template_but_replace_none() {
    let template = template("{{ date }}|{{ bos_token }}|{{ tools is none }}");
    let mut chat = hello();
    chat.extra.insert("date".to_owned(), "today".into());
    chat.extra.insert("bos_token".to_owned(), "x".into());
    assert_eq!(template.render(&chat).expect("it renders").text(), "today|<bos>|True");
}
