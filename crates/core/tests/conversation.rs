//! What becomes of a conversation that a provider would refuse, by example. Letters are those of the
//! oddities of providers, whose list is in the tests of `posse-infra`, `models/quirks.rs`.

use posse_core::model::conversation::{Conversation, Normaliser, ReasoningBack, Rules, is_call_id, normalise};
use posse_core::model::{Author, CallRequest, Extra, Message, Reasoning};
use serde_json::json;

fn me() -> Author {
    Author { provider: "host".into(), model: "m".into() }
}

fn sent(messages: &[Message]) -> Vec<Message> {
    normalise(messages, Rules::default(), &me())
}

fn system(text: &str) -> Message {
    Message::System { text: text.into() }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into() }
}

fn says(text: &str) -> Message {
    Message::Assistant { text: text.into(), reasoning: None, calls: Vec::new() }
}

fn call(id: &str) -> CallRequest {
    CallRequest { id: id.into(), name: "look".into(), arguments: "{}".into(), extra: None }
}

fn calls(ids: &[&str]) -> Message {
    Message::Assistant { text: String::new(), reasoning: None, calls: ids.iter().map(|id| call(id)).collect() }
}

fn result(id: &str, text: &str) -> Message {
    Message::Tool { call_id: id.into(), name: "look".into(), text: text.into() }
}

const NOT_KNOWN: &str =
    "The result of this call is not known: it may or may not have taken effect. Check before you repeat it.";

const A: &str = "c00000000";
const B: &str = "c00000001";

/// Ids of calls with the ids their results name, and what the results say.
fn pairs(messages: &[Message]) -> (Vec<String>, Vec<(String, String)>) {
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    for message in messages {
        match message {
            Message::Assistant { calls, .. } => asked.extend(calls.iter().map(|call| call.id.clone())),
            Message::Tool { call_id, text, .. } => answered.push((call_id.clone(), text.clone())),
            _ => {}
        }
    }
    (asked, answered)
}

#[test]
fn a_legal_conversation_stays_as_it_is() {
    let legal = [
        system("s"),
        user("u"),
        calls(&[A, B]),
        result(A, "a"),
        result(B, "b"),
        user("v"),
        says("  indented, and on"),
        user("w"),
        user("x"),
    ];
    assert_eq!(sent(&legal), legal);
}

#[test]
fn r_results_go_to_their_calls_in_order_each_once() {
    let wanted = [user("u"), calls(&[A, B]), result(A, "a"), result(B, "b"), user("v")];
    for mixed in [
        [user("u"), calls(&[A, B]), result(B, "b"), result(A, "a"), user("v")],
        [user("u"), calls(&[A, B]), user("v"), result(B, "b"), result(A, "a")],
        [user("u"), calls(&[A]), calls(&[B]), result(A, "a"), result(B, "b")],
    ] {
        let sent = sent(&mixed);
        assert_eq!(sent[..4], wanted[..4], "{mixed:?}");
    }
    let twice = [user("u"), calls(&[A]), result(A, "a"), result(A, "a"), user("v")];
    assert_eq!(sent(&twice), [user("u"), calls(&[A]), result(A, "a"), user("v")], "one result each");
}

#[test]
fn z_a_turn_that_was_split_is_one_turn() {
    let split = [user("u"), calls(&[A]), says("and another"), calls(&[B]), result(A, "a"), result(B, "b")];
    let Message::Assistant { calls: asked, .. } = calls(&[A, B]) else { unreachable!("it is one") };
    let whole = Message::Assistant { text: "and another".into(), reasoning: None, calls: asked };
    assert_eq!(sent(&split), [user("u"), whole, result(A, "a"), result(B, "b")]);
}

#[test]
fn r_a_missing_result_is_said_to_be_missing() {
    let broken = [user("u"), calls(&[A, B]), result(B, "b"), says("so"), user("v")];
    let mended = [user("u"), calls(&[A, B]), result(A, NOT_KNOWN), result(B, "b"), says("so"), user("v")];
    assert_eq!(sent(&broken), mended);
    let open = [user("u"), calls(&[A])];
    assert_eq!(sent(&open), [user("u"), calls(&[A]), result(A, NOT_KNOWN)]);
}

#[test]
fn c03_a_result_without_its_call_is_kept_as_text() {
    let orphan = [user("u"), result(A, "ALPHA-7"), calls(&[B]), result(B, "b")];
    let mended = [user("u"), user("Result of look:\nALPHA-7"), calls(&[B]), result(B, "b")];
    assert_eq!(sent(&orphan), mended);
    let late = [user("u"), calls(&[A]), user("v"), says("so"), result(A, "late")];
    assert_eq!(sent(&late).last(), Some(&user("Result of look:\nlate")));
}

#[test]
fn q_nothing_empty_is_sent_and_no_space_ends_what_the_model_said() {
    let empty = [
        system(""),
        user("u"),
        says(" \n"),
        user("\t"),
        Message::Assistant {
            text: String::new(),
            reasoning: Some(Reasoning { text: "only thought".into(), by: me() }),
            calls: Vec::new(),
        },
        calls(&[A]),
        result(A, "  "),
    ];
    assert_eq!(sent(&empty), [user("u"), calls(&[A]), result(A, "(no output)")]);
    assert_eq!(sent(&[user("u"), says("so. \n"), user("v")])[1], says("so."), "no space at an assistant's end");
}

#[test]
fn p_system_messages_are_first_and_one_unless_several_may_stand() {
    let many = [system("a"), user("u"), system("b"), says("so"), system("c"), user("v")];
    assert_eq!(sent(&many), [system("a\n\nb"), user("u"), says("so"), user("c"), user("v")]);
    let several = Rules { several_systems: true, ..Rules::default() };
    let two = normalise(&many, several, &me());
    assert_eq!(two, [system("a"), system("b"), user("u"), says("so"), user("c"), user("v")]);
}

#[test]
fn q_the_user_is_first_and_the_model_never_last() {
    assert_eq!(sent(&[system("s"), says("so")]), [system("s"), user("Begin."), says("so"), user("Go on.")]);
    assert_eq!(sent(&[]), [user("Begin.")]);
}

#[test]
fn b19_ids_are_mapped_one_to_one_and_always_in_the_same_way() {
    let foreign = ["call_AbC123xyz1", "call_AbC123xyz2", "", "call_AbC123xyz1", A, A];
    let mut conversation = vec![user("u")];
    for ids in foreign.chunks(2) {
        conversation.push(calls(ids));
        conversation.extend(ids.iter().map(|id| result(id, &format!("of {id}"))));
    }
    let first = sent(&conversation);
    let (asked, answered) = pairs(&first);
    assert!(asked.iter().all(|id| is_call_id(id)), "{asked:?}");
    let different: std::collections::HashSet<_> = asked.iter().collect();
    assert_eq!(different.len(), foreign.len(), "{asked:?}");
    assert_eq!(asked[4], A, "an id that will do is kept");
    let told: Vec<_> = asked.iter().zip(foreign).map(|(id, was)| (id.clone(), format!("of {was}"))).collect();
    assert_eq!(answered, told, "the right result with the right call");

    conversation.extend([user("more"), calls(&["call_other"]), result("call_other", "r")]);
    let second = sent(&conversation);
    assert_eq!(second[..first.len()], first, "the same in the next request");
}

#[test]
fn what_a_model_made_up_is_sent_in_a_shape_that_is_taken() {
    let odd = |name: &str, arguments: &str| Message::Assistant {
        text: String::new(),
        reasoning: None,
        calls: vec![CallRequest { name: name.into(), arguments: arguments.into(), ..call(A) }],
    };
    for (name, arguments, name_sent, arguments_sent) in [
        ("functions.größe", "{\"path\":1}", "functions_gr__e", "{\"path\":1}"),
        ("", "", "unnamed", "{}"),
        ("look", "{\"path\":\"cu", "look", r#"{"not_a_json_object":"{\"path\":\"cu"}"#),
        ("look", "[1]", "look", r#"{"not_a_json_object":"[1]"}"#),
        ("look", "{} {}", "look", r#"{"not_a_json_object":"{} {}"}"#),
    ] {
        let answer = Message::Tool { call_id: A.into(), name: name.into(), text: "r".into() };
        let sent = sent(&[user("u"), odd(name, arguments), answer]);
        assert_eq!(sent[1], odd(name_sent, arguments_sent));
        assert!(matches!(&sent[2], Message::Tool { name, .. } if name == name_sent), "{sent:?}");
    }
}

#[test]
fn a_message_is_put_between_a_result_and_a_user_where_it_must() {
    let rules = Rules { user_after_tool: false, ..Rules::default() };
    let sent = normalise(&[user("u"), calls(&[A]), result(A, "a"), user("v"), user("w")], rules, &me());
    let between = says("I have the results.");
    assert_eq!(sent, [user("u"), calls(&[A]), result(A, "a"), between, user("v"), user("w")]);
}

#[test]
fn neighbours_become_one_where_roles_take_turns() {
    let rules = Rules { take_turns: true, ..Rules::default() };
    let row = [system("s"), user("u"), user("v"), says("a"), says("b"), user("w"), calls(&[A]), result(A, "r")];
    let sent = normalise(&row, rules, &me());
    assert_eq!(sent, [system("s"), user("u\n\nv"), says("a\n\nb"), user("w"), calls(&[A]), result(A, "r")]);
}

fn thinks(by: Option<Author>) -> Message {
    let reasoning = by.map(|by| Reasoning { text: "because".into(), by });
    Message::Assistant { text: "so".into(), reasoning, calls: Vec::new() }
}

#[test]
fn b15_reasoning_goes_to_the_model_that_wrote_it_and_to_no_other() {
    let other = || Author { model: "other".into(), ..me() };
    let row = [user("u"), thinks(Some(me())), user("v"), thinks(Some(other())), user("w"), thinks(None), user("x")];
    let kept = |back| {
        let sent = normalise(&row, Rules { reasoning: back, ..Rules::default() }, &me());
        [1, 3, 5].map(|at: usize| match &sent[at] {
            Message::Assistant { reasoning, .. } => reasoning.as_ref().map_or("none", |r| r.text.as_str()).to_owned(),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(kept(ReasoningBack::Forbidden), ["none", "none", "none"]);
    assert_eq!(kept(ReasoningBack::Optional), ["because", "none", "none"]);
    assert_eq!(kept(ReasoningBack::Required), ["because", "(not recorded)", "(not recorded)"]);
}

#[test]
fn reasoning_may_be_a_bare_text_and_goes_to_nobody_then() {
    let turn = |reasoning: serde_json::Value| {
        let message = json!({"role": "assistant", "text": "so", "reasoning": reasoning});
        serde_json::from_value::<Message>(message)
    };
    let whole = turn(json!({"text": "because", "by": {"provider": "host", "model": "m"}}));
    assert_eq!(whole.expect("whole"), thinks(Some(me())));
    for bare in [json!("because"), json!({"text": "because"})] {
        let said = turn(bare).expect("thoughts of nobody");
        assert_eq!(said, thinks(Some(Author::default())));
        let rules = Rules { reasoning: ReasoningBack::Optional, ..Rules::default() };
        assert_eq!(normalise(&[user("u"), said, user("v")], rules, &me())[1], thinks(None));
    }
    assert_eq!(turn(json!(null)).expect("none"), thinks(None));
    turn(json!(7)).expect_err("neither");
    let entry = json!({"text": "", "reasoning": "because", "usage": {"input": 1, "output": 1}, "model": "m", "ms": 1});
    let entry = serde_json::from_value::<posse_core::run::journal::Turn>(entry);
    assert_eq!(entry.expect("an older journal's").reasoning.map(|it| it.text).as_deref(), Some("because"));
}

#[test]
fn private_data_goes_back_to_its_provider_and_to_no_other() {
    let extra = |provider: &str| Some(Extra { value: json!({"sign": provider}), provider: provider.into() });
    let signed = |provider: &str| Message::Assistant {
        text: String::new(),
        reasoning: None,
        calls: vec![CallRequest { extra: extra(provider), ..call(A) }, call(B)],
    };
    let first = |provider: &str, rules| match &normalise(&[user("u"), signed(provider)], rules, &me())[1] {
        Message::Assistant { calls, .. } => (calls[0].extra.clone(), calls[1].extra.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(first("host", Rules::default()), (extra("host"), None));
    assert_eq!(first("elsewhere", Rules::default()), (None, None));
    let google = Rules { signed_calls: true, ..Rules::default() };
    assert_eq!(first("host", google), (extra("host"), None));
    let value = json!({"google": {"thought_signature": "skip_thought_signature_validator"}});
    assert_eq!(first("elsewhere", google), (Some(Extra { value, provider: "host".into() }), None));
}

#[test]
fn what_is_given_out_is_settled() {
    let row = [system("s"), user("u"), calls(&["x"]), result("x", "r"), user("v"), calls(&["x"]), result("x", "r2")];
    let mut normaliser = Normaliser::new(Rules::default(), me());
    let mut settled = Vec::new();
    for (at, message) in row.iter().enumerate() {
        normaliser.push(message, &mut settled);
        let mut whole = settled.clone();
        normaliser.rest(None, &mut whole);
        assert_eq!(whole, sent(&row[..=at]), "after {at}");
    }
}

#[test]
fn a_tail_is_said_last_and_settles_nothing() {
    let rules = Rules { user_after_tool: false, take_turns: true, ..Rules::default() };
    let mut normaliser = Normaliser::new(rules, me());
    let mut settled = Vec::new();
    for message in [user("u"), calls(&[A]), result(A, "a")] {
        normaliser.push(&message, &mut settled);
    }
    for tail in ["[view 1]", "[view 2]"] {
        let mut rest = Vec::new();
        normaliser.rest(Some(tail), &mut rest);
        assert_eq!(rest, [calls(&[A]), result(A, "a"), says("I have the results."), user(tail)]);
    }
    let mut rest = Vec::new();
    normaliser.rest(Some(" "), &mut rest);
    assert_eq!(rest, [calls(&[A]), result(A, "a")], "nothing is said with nothing");
}

#[test]
fn a_conversation_is_shared_until_it_grows() {
    let mut conversation = Conversation::from(vec![user("u")]);
    conversation.keep(|kept| *kept = Some(1_usize));
    let request = conversation.clone();
    assert_eq!(request.keep(|kept: &mut Option<usize>| *kept), Some(1), "a clone is the same conversation");

    conversation.push(user("v"));
    assert_eq!((request.len(), conversation.len()), (1, 2), "whoever holds it sees it as it was");
    assert_eq!(conversation.keep(|kept: &mut Option<usize>| *kept), None, "it is another one now");

    conversation.keep(|kept| *kept = Some(2_usize));
    conversation.push(user("w"));
    assert_eq!(conversation.keep(|kept: &mut Option<usize>| *kept), Some(2), "held by nobody else, it only grows");
    assert_eq!(conversation.keep(|kept: &mut Option<String>| kept.clone()), None, "what another type keeps is lost");
    assert_eq!(*conversation, [user("u"), user("v"), user("w")]);
}
