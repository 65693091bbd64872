//! The rules that the scripted model holds requests to.

use posse_core::model::conversation::{ReasoningBack, Rules};
use posse_core::model::{Author, CallRequest, Message, ModelRequest, Reasoning};
use posse_core::tool::ToolSpec;
use posse_testing::validate::{Rule, Violation, validate, validate_strictly, validate_tools};

fn system() -> Message {
    Message::System { text: "s".to_owned() }
}

fn user(text: &str) -> Message {
    Message::User { text: text.to_owned() }
}

fn calls(ids: &[&str]) -> Message {
    let call =
        |id: &&str| CallRequest { id: (*id).to_owned(), name: "f".to_owned(), arguments: "{}".to_owned(), extra: None };
    Message::Assistant { text: String::new(), reasoning: None, calls: ids.iter().map(call).collect() }
}

fn result(id: &str) -> Message {
    Message::Tool { call_id: id.to_owned(), name: "f".to_owned(), text: "r".to_owned() }
}

fn check(messages: &[Message], expected: &[(usize, Rule)]) {
    let expected: Vec<_> = expected.iter().map(|(at, rule)| Violation { at: *at, rule: rule.clone() }).collect();
    assert_eq!(validate(messages), expected, "{messages:?}");
}

#[test]
fn what_may_be_sent() {
    check(&[], &[]);
    check(&[system(), user("u")], &[]);
    check(&[system(), user("u"), calls(&["a", "b"]), result("b"), result("a"), user("more")], &[]);
    check(&[user("u"), calls(&["a"]), result("a"), calls(&["b"]), result("b")], &[]);
}

#[test]
fn what_may_not() {
    let id = |id: &str| id.to_owned();
    check(&[user("u"), system()], &[(1, Rule::SystemNotFirst)]);
    check(&[system(), user("u"), system()], &[(2, Rule::SystemNotFirst)]);
    check(&[user(" \n")], &[(0, Rule::Empty)]);
    check(&[calls(&[])], &[(0, Rule::Empty)]);
    check(&[user("u"), result("a")], &[(1, Rule::OrphanResult(id("a")))]);
    check(&[calls(&["a"]), result("a"), result("a")], &[(2, Rule::OrphanResult(id("a")))]);
    check(&[calls(&["a"]), user("u")], &[(1, Rule::Unanswered(id("a")))]);
    check(&[calls(&["a", "b"]), result("b")], &[(2, Rule::Unanswered(id("a")))]);
    check(
        &[calls(&["a"]), user("u"), result("a")],
        &[(1, Rule::Unanswered(id("a"))), (2, Rule::OrphanResult(id("a")))],
    );
    check(&[calls(&["a"]), result("a"), calls(&["a"]), result("a")], &[(2, Rule::RepeatedId(id("a")))]);
    check(&[calls(&["a", "a"]), result("a"), result("a")], &[(0, Rule::RepeatedId(id("a")))]);
}

#[test]
fn what_a_strict_provider_minds() {
    let reader = Author { provider: "p".to_owned(), model: "m".to_owned() };
    let strict = |rules: Rules, messages: &[Message]| -> Vec<_> {
        validate_strictly(messages, rules, &reader).into_iter().map(|v| (v.at, v.rule)).collect()
    };
    let open = Rules { reasoning: ReasoningBack::Optional, ..Rules::default() };
    let says = |text: &str, by: Option<&Author>| Message::Assistant {
        text: text.to_owned(),
        reasoning: by.map(|by| Reasoning { text: "r".to_owned(), by: by.clone() }),
        calls: Vec::new(),
    };
    let nine = ["aaaaaaaa1", "aaaaaaaa2"];
    let good = [system(), user("u"), calls(&nine), result(nine[0]), result(nine[1]), user("v")];
    assert_eq!(strict(open, &good), []);

    let lone = |rule| vec![(1, rule)];
    assert_eq!(strict(open, &[system()]), lone(Rule::NothingAsked));
    assert_eq!(strict(open, &[user("u"), says("a ", None), user("v")]), lone(Rule::TrailingSpace));
    assert_eq!(strict(open, &[user("u"), says("a", None)]), [(2, Rule::NothingAsked)]);
    assert_eq!(strict(open, &[says("a", None), user("v")]), [(0, Rule::NotUserFirst)]);
    let swapped = [user("u"), calls(&nine), result(nine[1]), result(nine[0])];
    let out_of_order = |at: usize, id: &str| (at, Rule::OutOfOrder(id.to_owned()));
    assert_eq!(strict(open, &swapped), [out_of_order(2, nine[1]), out_of_order(3, nine[0])]);
    let long = [user("u"), calls(&["call_long"]), result("call_long")];
    assert_eq!(strict(open, &long), lone(Rule::BadCallId("call_long".to_owned())));
    let other = Author { model: "other".to_owned(), ..reader.clone() };
    assert_eq!(strict(open, &[user("u"), says("a", Some(&other)), user("v")]), lone(Rule::ForeignData));

    let two = [system(), system(), user("u")];
    assert_eq!(strict(open, &two), lone(Rule::SecondSystem));
    let several = Rules { several_systems: true, ..open };
    assert_eq!(strict(several, &two), []);
    assert_eq!(strict(several, &[system(), user("u"), system(), user("v")]), [(2, Rule::SystemNotFirst)]);

    let mistral = Rules { user_after_tool: false, ..open };
    assert_eq!(strict(mistral, &good), [(5, Rule::UserAfterTool)]);
    let turns = Rules { take_turns: true, ..open };
    assert_eq!(strict(turns, &[user("u"), user("v")]), lone(Rule::SameRoleTwice));
    let wants = Rules { reasoning: ReasoningBack::Required, ..open };
    assert_eq!(strict(wants, &[user("u"), says("a", None), user("v")]), lone(Rule::NoReasoning));
    let refuses = Rules::default();
    assert_eq!(strict(refuses, &[user("u"), says("a", Some(&reader)), user("v")]), lone(Rule::Reasoning));
    let signed = Rules { signed_calls: true, ..open };
    assert_eq!(strict(signed, &good), [(2, Rule::Unsigned)]);
}

#[test]
fn names_of_tools() {
    for (name, good) in [
        ("files_read", true),
        ("a-B_9", true),
        ("", false),
        ("docs.create", false),
        ("größe", false),
        (&"x".repeat(64), true),
        (&"x".repeat(65), false),
    ] {
        let (name, parameters) = (name.to_owned(), serde_json::json!({"type": "object"}));
        let tool = ToolSpec { name: name.clone(), description: "d".to_owned(), parameters };
        let bad = Violation { at: 0, rule: Rule::BadToolName(name) };
        let found = validate_tools(&ModelRequest { tools: vec![tool], ..ModelRequest::default() });
        assert_eq!(found, if good { vec![] } else { vec![bad] });
    }
}
