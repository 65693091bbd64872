//! Accepting work: everything is checked here, once, before anything is stored.

use posse_core::job::change::Edit;
use posse_core::job::dependency::{After, MAX_AFTER, MAX_AFTER_GROUPS};
use posse_core::job::enqueue::*;
use posse_core::job::retry::{RetryPolicy, Strategy};
use posse_core::job::{DEFAULT_MAX_ATTEMPTS, IfHeld, JobId, Meta, NewJob, Unique};

fn ask(change: impl FnOnce(&mut EnqueueRequest)) -> Result<NewJob, Refused> {
    let mut ask = EnqueueRequest { role: "researcher".into(), goal: "find it".into(), ..EnqueueRequest::default() };
    change(&mut ask);
    accept(ask, &["researcher".into(), "scribe".into()])
}

#[test]
fn edits_follow_the_same_rules() {
    let roles = ["scribe".to_owned()];
    let field = |edit: Edit| accept_edit(&edit, &roles).map_err(|refused| refused.field);
    assert_eq!(field(Edit::default()), Err("edit"));
    assert_eq!(field(Edit { goal: Some("g".into()), role: Some("scribe".into()), ..Edit::default() }), Ok(()));
    assert_eq!(field(Edit { goal: Some(" ".into()), ..Edit::default() }), Err("goal"));
    assert_eq!(field(Edit { role: Some("plumber".into()), ..Edit::default() }), Err("role"));
    assert_eq!(field(Edit { priority: Some(0), ..Edit::default() }), Err("priority"));
    assert_eq!(field(Edit { max_attempts: Some(0), ..Edit::default() }), Err("max_attempts"));
    assert_eq!(field(Edit { queue: Some("A B".into()), ..Edit::default() }), Err("queue"));
}

#[test]
fn refusals_name_the_field_and_the_way_out() {
    let field = |r: Result<NewJob, Refused>| r.map_err(|e| e.field);
    assert!(ask(|_| ()).is_ok());
    assert!(ask(|a| a.goal = "e\u{301} \u{202e}gpj.exe \\u0000".into()).is_ok());
    assert_eq!(field(ask(|a| a.goal = " \n".into())), Err("goal"));
    assert_eq!(field(ask(|a| a.goal = "x".repeat(MAX_GOAL_BYTES + 1))), Err("goal"));
    assert_eq!(
        ask(|a| a.goal = "a\0b".into()).expect_err("NUL").to_string(),
        "goal contains a NUL character at byte 1; remove it"
    );
    assert_eq!(field(ask(|a| a.priority = Some(0))), Err("priority"));
    assert_eq!(field(ask(|a| a.max_attempts = Some(0))), Err("max_attempts"));
    assert_eq!(field(ask(|a| a.max_crashes = Some(0))), Err("max_crashes"));
    assert_eq!(field(ask(|a| a.priority_step_ms = -1)), Err("priority_step"));
    assert_eq!(field(ask(|a| a.concurrency_key = Some("a\nb".into()))), Err("concurrency_key"));
    let unique = |key: &str, for_ms| Some(Unique { key: key.into(), for_ms, ..Unique::default() });
    let debounce = |at_most_ms| {
        let if_held = IfHeld::Debounce { at_most_ms };
        Some(Unique { key: "k".into(), if_held, ..Unique::default() })
    };
    assert_eq!(field(ask(|a| a.unique = debounce(None))), Err("if_held"));
    assert_eq!(field(ask(|a| (a.unique, a.run_at) = (debounce(Some(0)), Some(9)))), Err("debounce_at_most"));
    assert!(ask(|a| (a.unique, a.run_at) = (debounce(Some(1)), Some(9))).is_ok());
    assert_eq!(field(ask(|a| a.unique = unique("", None))), Err("unique"));
    assert_eq!(field(ask(|a| a.unique = unique(&"k".repeat(257), None))), Err("unique"));
    assert_eq!(field(ask(|a| a.unique = unique("k", Some(0)))), Err("unique_for"));
    assert_eq!(field(ask(|a| a.queue = "Mail Out".into())), Err("queue"));
    assert_eq!(field(ask(|a| a.group = Some(" g".into()))), Err("group"));
    assert_eq!(field(ask(|a| a.tags = vec!["a\n".into()])), Err("tags"));
    assert_eq!(field(ask(|a| a.tags = vec!["t".into(); MAX_TAGS + 1])), Err("tags"));
    assert_eq!(field(ask(|a| a.after = vec![After::Job(JobId(1)); MAX_AFTER + 1])), Err("after"));
    let after_groups = |names: &[&str]| names.iter().copied().map(String::from).collect::<Vec<_>>();
    assert_eq!(field(ask(|a| a.after_groups = after_groups(&["a "]))), Err("after_group"));
    let many = || (0..=MAX_AFTER_GROUPS).map(|n| n.to_string()).collect();
    assert_eq!(field(ask(|a| a.after_groups = many())), Err("after_group"));
    let own = ask(|a| (a.group, a.after_groups) = (Some("g".into()), after_groups(&["f", "g"])));
    assert!(own.expect_err("waits for itself").message.contains("'g' is its own group"));
    let kept = ask(|a| a.after_groups = after_groups(&["h", "g", "h"])).expect("is fine");
    assert_eq!(kept.after_groups, ["g", "h"]);
    let meta = |key: &str, value: String| Meta::from_iter([(key.to_owned(), value.into())]);
    assert_eq!(field(ask(|a| a.meta = meta("k", "x".repeat(MAX_META_BYTES)))), Err("meta"));
    assert_eq!(field(ask(|a| a.meta = meta("k", "a\0b".into()))), Err("meta"));
    assert_eq!(field(ask(|a| a.meta = meta("", "v".into()))), Err("meta"));
    let kept = ask(|a| a.tags = vec!["b".into(), "a".into(), "b".into()]).expect("is fine");
    assert_eq!(kept.tags, ["a", "b"]);
    let unknown = ask(|a| a.role = "plumber".into()).expect_err("no such persona").to_string();
    assert!(unknown.contains("there are: researcher, scribe"), "{unknown}");
    let spelled = ask(|a| a.role = " RESEARCHER ".into()).expect("a role, however it is spelled");
    assert_eq!(spelled.role, "researcher");
    let odd = ask(|a| a.role = "Big/Boss".into()).expect_err("not a role name").to_string();
    assert!(odd.contains("\"big-boss\""), "{odd}");
}

#[test]
fn the_policy_says_how_many_attempts_unless_the_job_does() {
    let with = |retry: RetryPolicy, own| {
        let new = ask(|a| (a.retry, a.max_attempts) = (Some(retry), own));
        new.map(|job| job.max_attempts).map_err(|refused| refused.field)
    };
    let (usual, none) = (RetryPolicy::default(), RetryPolicy { strategy: Strategy::None, ..Default::default() });
    assert_eq!(ask(|_| ()).expect("is legal").max_attempts, DEFAULT_MAX_ATTEMPTS);
    assert_eq!(with(RetryPolicy { max_attempts: Some(7), ..usual }, None), Ok(7));
    assert_eq!(with(RetryPolicy { max_attempts: Some(7), ..usual }, Some(2)), Ok(2));
    assert_eq!((with(none, None), with(none, Some(1))), (Ok(1), Ok(1)));
    assert_eq!(with(none, Some(2)), Err("max_attempts"));
    assert_eq!(with(RetryPolicy { base_seconds: 0, ..usual }, None), Err("retry"));
}
