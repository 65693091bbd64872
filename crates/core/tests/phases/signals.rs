//! Signals: what is counted, and when the agent is told.

use posse_core::run::phase::Phase;
use posse_core::run::signals::{Signals, categorize_error};

const REPEATED: &str = "⚠ Same action failed twice. Reflect before acting again.";
const IDLE: &str = "⚠ 3 steps without action. Act, reflect, or ask.";
const PERMISSION: &str = "⚠ Multiple permission errors. Try a different approach.";

fn remarks(signals: &Signals) -> Vec<String> {
    signals.render(1, 14).lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn steps_are_counted() {
    let mut signals = Signals::default();
    assert_eq!(signals.render(0, 14), "ℹ 0 of 14 steps used");
    signals.on_non_act(Phase::Plan);
    signals.on_act("look a", None);
    signals.on_act("look b", Some("no such file"));
    assert_eq!(signals.render(3, 14), "ℹ 3 of 14 steps used");
    assert_eq!((signals.tool_calls_made(), signals.failed_tool_calls()), (2, 1));
    assert_eq!(signals.phase_history(), [Phase::Plan, Phase::Act, Phase::Act]);
    assert_eq!(signals.errors_by_category().iter().collect::<Vec<_>>(), [(&"not_found", &1)]);
}

#[test]
fn an_action_that_failed_twice_in_a_row() {
    let mut signals = Signals::default();
    signals.on_act("look a", Some("bad"));
    signals.on_non_act(Phase::Verify);
    assert!(remarks(&signals).is_empty());
    signals.on_act("look a", Some("bad"));
    assert_eq!(remarks(&signals), [REPEATED]);
    signals.on_act("look b", Some("bad"));
    assert!(remarks(&signals).is_empty(), "another action");
    signals.on_act("look b", None);
    signals.on_act("look b", Some("bad"));
    assert!(remarks(&signals).is_empty(), "it succeeded in between");
}

#[test]
fn repeating_what_succeeds_is_no_failure() {
    let mut signals = Signals::default();
    signals.on_act("a", Some("bad"));
    signals.on_act("b", Some("bad"));
    signals.on_act("c", None);
    signals.on_act("c", None);
    assert!(remarks(&signals).is_empty());
}

#[test]
fn three_steps_without_an_act() {
    let mut signals = Signals::default();
    signals.on_non_act(Phase::Plan);
    signals.on_non_act(Phase::Reason);
    assert!(remarks(&signals).is_empty());
    signals.on_non_act(Phase::Reason);
    assert_eq!(remarks(&signals), [IDLE]);
    signals.on_act("look", None);
    assert!(remarks(&signals).is_empty());
}

#[test]
fn repeated_permission_errors() {
    let mut signals = Signals::default();
    signals.on_act("a", Some("Permission denied: /etc"));
    assert!(remarks(&signals).is_empty());
    signals.on_act("b", None);
    signals.on_act("c", Some("access was DENIED"));
    assert_eq!(remarks(&signals), [PERMISSION]);
    signals.on_act("c", Some("access was DENIED"));
    assert_eq!(remarks(&signals), [REPEATED, PERMISSION]);
}

#[test]
fn categories() {
    for (message, category) in [
        ("File not found", "not_found"),
        ("no such file or directory", "not_found"),
        ("No such user: permission unknown", "not_found"),
        ("Permission missing", "permission"),
        ("access denied", "permission"),
        ("Timeout after 3 s", "timeout"),
        ("the request timed out", "timeout"),
        ("invalid argument", "invalid_input"),
        ("Validation failed", "invalid_input"),
        ("exit status 1", "runtime"),
        ("", "runtime"),
    ] {
        assert_eq!(categorize_error(message), category, "{message}");
    }
}
