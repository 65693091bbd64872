//! Which jobs may start.

use posse_core::queue::rules::{Gate, Held, Limits, Rule, Running, Scope, problem};

fn rule(scope: Scope, limits: Limits) -> Rule {
    Rule { scope, paused_at: None, limits, full_at_us: 0 }
}

fn running(role: &str, queue: &str, key: &str) -> Running {
    Running { role: role.into(), queue: queue.into(), key: key.into() }
}

#[test]
fn each_scope_counts_its_own() {
    let at_once = |n| Limits { running: Some(n), ..Limits::default() };
    let rules = vec![
        rule(Scope::All, at_once(10)),
        rule(Scope::Queue("q".into()), at_once(2)),
        rule(Scope::Key("k".into()), at_once(1)),
        rule(Scope::Role("other".into()), at_once(0)),
    ];
    let mut gate = Gate::new("r", rules, [running("other", "q", ""), running("other", "p", "")], 0);
    assert_eq!((gate.shut(), gate.held("q", "k")), (None, None));
    gate.start("q", "k");
    assert_eq!(gate.held("q", ""), Some(Held::Full { scope: Scope::Queue("q".into()), limit: 2 }));
    assert_eq!(gate.held("p", "k"), Some(Held::Full { scope: Scope::Key("k".into()), limit: 1 }));
    assert_eq!(gate.held("p", "other"), None);
    (0..7).for_each(|_| gate.start("p", ""));
    assert_eq!(gate.shut(), Some(Held::Full { scope: Scope::All, limit: 10 }));
}

#[test]
fn a_limit_per_key_counts_within_its_scope_and_no_job_without_a_key() {
    let per_key = Limits { running_per_key: Some(1), ..Limits::default() };
    let rules = vec![rule(Scope::Role("r".into()), per_key)];
    let mut gate = Gate::new("r", rules, [running("other", "q", "k"), running("r", "q", "l")], 0);
    assert_eq!(gate.held("q", "k"), None, "another role's job counts towards that role");
    assert!(matches!(gate.held("p", "l"), Some(Held::FullKey { .. })));
    gate.start("q", "k");
    assert!(gate.held("q", "k").is_some());
    (0..5).for_each(|_| gate.start("q", ""));
    assert_eq!((gate.held("q", ""), gate.shut()), (None, None));
}

#[test]
fn keys_are_served_in_rotation_where_that_is_asked_for() {
    let fair = Limits { fair: true, ..Limits::default() };
    let gate = |scope| Gate::new("r", vec![rule(scope, fair)], [], 0);
    let queue = gate(Scope::Queue("q".into()));
    assert_eq!((queue.is_fair(), queue.is_fair_in("q"), queue.is_fair_in("p")), (false, true, false));
    assert_eq!(queue.held("q", "k"), None, "and holds nobody");
    for (scope, is_fair) in [(Scope::All, true), (Scope::Role("r".into()), true), (Scope::Role("s".into()), false)] {
        assert_eq!(gate(scope.clone()).is_fair(), is_fair, "{scope}");
    }
    let key = Scope::Key("k".into());
    assert!(problem(&key, &fair).is_some_and(|problem| problem.contains("--fair is for a queue")));
    assert_eq!(problem(&Scope::All, &fair), None);
}

#[test]
fn what_is_paused_or_too_fast_is_held_in_words() {
    let pause = Rule { paused_at: Some(1), ..rule(Scope::Queue("q".into()), Limits::default()) };
    let rate = rule(Scope::Role("r".into()), Limits { per_minute: Some(30), ..Limits::default() });
    let now = 1_000_000;
    let mut gate = Gate::new("r", vec![pause, rate], [], now);
    assert_eq!(gate.held("q", "").expect("paused").to_string(), "queue q is paused");
    (0..3).for_each(|_| gate.start("p", ""));
    let held = gate.shut().expect("too fast").to_string();
    assert_eq!(held, "role r has a limit of 30 a minute; the next may start in 3 s");
    let spent: Vec<_> = gate.spent().map(|rule| (rule.scope, rule.full_at_us)).collect();
    assert_eq!(spent, [(Scope::Role("r".into()), now * 1000 + 6_000_000)]);
}
