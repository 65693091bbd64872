//! The journal, and the ledger and annotations that follow it.

use std::collections::HashSet;
use std::sync::Arc;

use super::*;
use posse_core::annotation::{AnnotationFilter, NewAnnotation, Tagging, words_of};
use posse_core::model::{Author, CallRequest, Extra, FailedTry, Finish, Reasoning, ToolCalling, Usage};
use posse_core::persona::PersonaTemplate;
use posse_core::run::journal::{
    Call, CallOutcome, CallState, EndStatus, LedgerChange, OfferedTool, Opening, Turn, effect_key, ledger_changes,
};
use posse_core::tool::{EffectClass, ToolErrorCategory, ToolSpec, Writes};

/// A run's first entry, with a system message of its own.
pub fn began(system: &str) -> Entry {
    let persona: PersonaTemplate =
        serde_json::from_str(r#"{"role": "r", "goal": "g", "tools": ["filesystem"]}"#).expect("is a persona");
    let spec = ToolSpec {
        name: "read_file".into(),
        description: "Reads a file.".into(),
        parameters: serde_json::json!({"type": "object", "properties": {"z": {}, "a": {"type": "string"}}}),
    };
    Entry::Began {
        goal: "find out".into(),
        opening: Arc::new(Opening {
            persona,
            model: "default".into(),
            calling: ToolCalling::Native,
            tools: vec![OfferedTool { spec, effect: EffectClass::Pure, writes: Writes::Nothing, own_words: false }],
            system: system.into(),
            ..Opening::default()
        }),
    }
}

fn call(id: &str, effect: Option<EffectClass>) -> Call {
    Call {
        request: CallRequest {
            id: id.into(),
            name: format!("tool_{id}"),
            arguments: r#"{"a": "\u0000 and ü"}"#.into(),
            extra: Some(Extra { value: serde_json::json!({"signature": "abc"}), provider: "host".into() }),
        },
        effect,
    }
}

fn turn(calls: Vec<Call>) -> Entry {
    Entry::Turn(Turn {
        text: "let me see\0".into(),
        reasoning: Some(Reasoning { text: "hm".into(), by: Author { provider: "host".into(), model: "m".into() } }),
        calls,
        cut_calls: vec![call("cut", None).request],
        finish: Finish::Other("odd".into()),
        usage: Usage { input: 10, output: 3, cached: 5, estimated: true },
        model: "m-1".into(),
        cost_microusd: Some(12),
        failed_tries: vec![FailedTry { model: "m-0".into(), reason: "503".into(), usage: Usage::default() }],
        ms: 77,
    })
}

fn started(id: &str) -> Entry {
    Entry::CallStarted { call_id: id.into() }
}

fn ended(id: &str, outcome: CallOutcome, text: &str) -> Entry {
    let annotations = vec![NewAnnotation { text: format!("about {id}"), tags: vec!["tag".into(), "two words".into()] }];
    Entry::CallEnded { call_id: id.into(), outcome, text: text.into(), annotations, ms: 4 }
}

/// A run with every kind of entry and every outcome of a call.
pub fn whole_run() -> Vec<Entry> {
    let failed = CallOutcome::Failed { category: ToolErrorCategory::NotFound };
    vec![
        began("You are r."),
        turn(vec![
            call("a", Some(EffectClass::Pure)),
            call("b", Some(EffectClass::Idempotent)),
            call("c", Some(EffectClass::Once)),
            call("d", Some(EffectClass::Once)),
            call("e", None),
        ]),
        started("a"),
        ended("a", CallOutcome::Done, "short"),
        started("b"),
        started("b"),
        ended("b", failed, &"long ü\0".repeat(1000)),
        started("c"),
        ended("c", CallOutcome::Unknown, "may or may not have happened"),
        ended("d", CallOutcome::Refused, "the run ends"),
        ended("e", CallOutcome::Refused, "there is no such tool"),
        Entry::TurnFailed { reason: "503".into(), failed_tries: vec![], overflow: None, ms: 9 },
        note("mend this"),
        turn(vec![call("f", Some(EffectClass::Pure))]),
        Entry::Ended { status: EndStatus::LimitReached, text: "so far".into(), reason: Some("turns".into()) },
        Entry::Reopened,
        Entry::Restarted,
    ]
}

pub async fn save(store: &dyn Store, lease: Lease, entries: &[Entry]) {
    for (seq, entry) in (0..).zip(entries) {
        store.append(lease, seq, vec![entry.clone()], T0 + seq as i64).await.expect("is saved");
    }
}

pub async fn read(store: &dyn Store, id: JobId) -> Vec<Entry> {
    store.journal(id, 0).await.expect("can be read").into_iter().map(|recorded| recorded.entry).collect()
}

pub async fn every_kind_of_entry_comes_back(store: Arc<dyn Store>) {
    let entries = whole_run();
    let kinds: HashSet<_> = entries.iter().map(Entry::kind).collect();
    assert_eq!(kinds.len(), 9, "the test knows every kind");

    let one_by_one = running(&*store, "r", T0).await;
    save(&*store, one_by_one, &entries).await;
    assert_eq!(read(&*store, one_by_one.job).await, entries);

    let at_once = running(&*store, "r", T0).await;
    store.append(at_once, 0, entries[..3].to_vec(), T0).await.expect("is saved");
    let end = Ending { entries: entries[3..].to_vec(), seq: 3, ..ending(Event::Complete, T0) };
    store.finish(at_once, end, T0).await.expect("finishes");
    assert_eq!(read(&*store, at_once.job).await, entries);
}

pub async fn entries_are_read_from_a_place_on(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let entries = whole_run();
    save(&*store, lease, &entries).await;
    let rest = store.journal(lease.job, 9).await.expect("can be read");
    assert_eq!(rest.len(), entries.len() - 9);
    for (recorded, seq) in rest.iter().zip(9..) {
        assert_eq!((recorded.seq, recorded.at), (seq, T0 + seq as i64));
        assert_eq!(recorded.entry, entries[seq as usize]);
    }
    assert!(store.journal(lease.job, u64::MAX).await.expect("can be read").is_empty());
}

pub async fn a_gap_or_a_repeat_is_refused(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    store.append(lease, 0, vec![note("0"), note("1")], T0).await.expect("is saved");
    let before = everything(&*store, lease.job).await;
    for seq in [0, 1, 3, u64::MAX] {
        let error = store.append(lease, seq, vec![note("x")], T0).await.expect_err("is refused");
        assert!(matches!(&error, RepositoryError::Misused(text) if text.contains("goes on at place 2")), "{error}");
        let end = Ending { entries: vec![note("x")], seq, ..ending(Event::Complete, T0) };
        store.finish(lease, end, T0).await.expect_err("is refused");
        assert_eq!(everything(&*store, lease.job).await, before, "nothing was changed");
    }
    store.append(lease, 2, vec![note("2")], T0).await.expect("the right place is taken");
}

/// What the ledger must be, computed from the journal alone.
fn fold(
    installation: &str,
    job: JobId,
    entries: &[Entry],
) -> Vec<(String, u64, String, EffectClass, String, CallState, i64)> {
    let mut rows: Vec<(String, u64, String, EffectClass, String, CallState, i64)> = Vec::new();
    for (seq, entry) in (0..).zip(entries) {
        let at = T0 + seq as i64;
        for change in ledger_changes(entry) {
            match change {
                LedgerChange::Propose { call_id, tool, effect } => {
                    let key = effect_key(installation, job, &call_id);
                    rows.push((call_id, seq, tool, effect, key, CallState::Proposed, at));
                }
                LedgerChange::Move { call_id, to } => {
                    for row in rows.iter_mut().filter(|row| row.0 == call_id) {
                        (row.5, row.6) = (to, at);
                    }
                }
            }
        }
    }
    rows
}

pub async fn the_ledger_is_the_fold_of_the_journal(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let entries = whole_run();
    for (seq, entry) in (0..).zip(&entries) {
        store.append(lease, seq, vec![entry.clone()], T0 + seq as i64).await.expect("is saved");
        let ledger = store.ledger(lease.job).await.expect("can be read");
        let got: Vec<_> = ledger
            .into_iter()
            .map(|row| (row.call_id, row.seq, row.tool, row.effect, row.effect_key, row.state, row.at))
            .collect();
        assert_eq!(got, fold(store.installation(), lease.job, &entries[..=seq as usize]), "after entry {seq}");
    }
}

pub async fn illegal_moves_of_the_ledger_are_refused(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let calls =
        ["a", "b", "c", "d"].map(|id| call(id, Some(if id == "a" { EffectClass::Pure } else { EffectClass::Once })));
    let done = |id| ended(id, CallOutcome::Done, "ok");
    let opening = vec![turn(calls.to_vec()), started("a"), started("b"), started("c"), done("c")];
    store.append(lease, 0, opening, T0).await.expect("is saved");
    let before = everything(&*store, lease.job).await;
    for (entry, why) in [
        (started("b"), "must not run twice"),
        (started("c"), "has ended"),
        (done("c"), "has ended"),
        (ended("c", CallOutcome::Unknown, "?"), "has ended"),
        (done("d"), "was never started"),
        (ended("d", CallOutcome::Unknown, "?"), "was never started"),
        (ended("a", CallOutcome::Refused, "no"), "was started"),
        (turn(vec![call("a", Some(EffectClass::Pure))]), "the id is taken"),
    ] {
        // Behind an entry that is right, to see that it is taken back too.
        let error = store.append(lease, 5, vec![note("right"), entry], T0).await.expect_err(why);
        assert!(matches!(error, RepositoryError::Misused(_)), "{why}: {error:?}");
        assert_eq!(everything(&*store, lease.job).await, before, "{why}");
    }
    store.append(lease, 5, vec![started("a"), done("a"), started("zz")], T0).await.expect("these are right");
}

pub async fn an_effect_key_names_one_call_of_one_job(store: Arc<dyn Store>) {
    let mut keys = HashSet::new();
    for _ in 0..3 {
        let lease = running(&*store, "r", T0).await;
        let calls = ["a", "b"].map(|id| call(id, Some(EffectClass::Once)));
        store.append(lease, 0, vec![turn(calls.to_vec())], T0).await.expect("is saved");
        keys.extend(store.ledger(lease.job).await.expect("can be read").into_iter().map(|row| row.effect_key));
    }
    assert_eq!(keys.len(), 6);
    assert_eq!(store.installation().len(), 32);
}

pub async fn annotations_are_saved_with_their_entry(store: Arc<dyn Store>) {
    let lease = running(&*store, "researcher", T0).await;
    let entries =
        vec![turn(vec![call("a", Some(EffectClass::Pure))]), started("a"), ended("a", CallOutcome::Done, "ok")];
    store.append(lease, 0, entries, T0 + 3).await.expect("is saved");
    let saved = store.annotations(lease.job).await.expect("can be read");
    assert_eq!(saved.len(), 1);
    assert_eq!((saved[0].author.as_str(), saved[0].text.as_str()), ("researcher", "about a"));
    assert_eq!((saved[0].tags.as_slice(), saved[0].created_at), (&["tag".into(), "two words".into()][..], T0 + 3));
    store.append(lease, 9, vec![ended("x", CallOutcome::Done, "ok")], T0).await.expect_err("is refused");
    assert_eq!(store.annotations(lease.job).await.expect("can be read").len(), 1);
}

pub async fn annotations_by_hand_are_saved(store: Arc<dyn Store>) {
    let id = enqueue(&*store, "r", T0).await;
    let remark = |text: &str| NewAnnotation { text: text.into(), tags: vec![] };
    let first = store.annotate(id, "person".into(), remark("one"), T0).await.expect("is saved");
    let second = store.annotate(id, "person".into(), remark("two"), T0).await.expect("is saved");
    let saved = store.annotations(id).await.expect("can be read");
    assert_eq!(saved.iter().map(|a| (a.id, a.text.as_str())).collect::<Vec<_>>(), [(first, "one"), (second, "two")]);
}

pub async fn annotations_are_found_by_tag_job_author_and_words(store: Arc<dyn Store>) {
    let jobs = [enqueue(&*store, "r", T0).await, enqueue(&*store, "r", T0).await];
    let mut ids = Vec::new();
    for (job, author, text, tags) in [
        (0, "person", "The price of wool is missing.", &["price", "gap"][..]),
        (1, "r", "Wool comes from Bergen", &["supplier"]),
        (1, "r", "which price? And which wool?", &["clarification_needed", "gap"]),
        (0, "r", "\u{e9}crit en fran\u{e7}ais", &[]),
    ] {
        let remark = NewAnnotation { text: text.into(), tags: tags.iter().map(|tag| (*tag).to_owned()).collect() };
        ids.push(store.annotate(jobs[job], author.into(), remark, T0).await.expect("is saved"));
    }
    let all = AnnotationFilter { limit: 10, ..AnnotationFilter::default() };
    let found = async |filter: AnnotationFilter| {
        let found = store.find_annotations(filter).await.expect("can be read");
        found.iter().map(|one| ids.iter().position(|id| *id == one.id).expect("is one of them")).collect::<Vec<_>>()
    };
    let words = |words: &str| AnnotationFilter { words: words_of(words), ..all.clone() };
    let tagged =
        |tags: &[&str]| AnnotationFilter { tags: tags.iter().map(|tag| (*tag).into()).collect(), ..all.clone() };
    assert_eq!(found(all.clone()).await, [3, 2, 1, 0], "newest first");
    assert_eq!(found(AnnotationFilter { limit: 2, ..all.clone() }).await, [3, 2]);
    assert_eq!(found(AnnotationFilter { before: Some(ids[2]), ..all.clone() }).await, [1, 0], "the next page");
    assert_eq!(found(AnnotationFilter { id: Some(ids[1]), ..all.clone() }).await, [1]);
    assert_eq!(found(AnnotationFilter { job: Some(jobs[0]), ..all.clone() }).await, [3, 0]);
    assert_eq!(found(AnnotationFilter { author: Some("person".into()), ..all.clone() }).await, [0]);
    assert_eq!(found(tagged(&["gap"])).await, [2, 0]);
    assert_eq!(found(tagged(&["gap", "price"])).await, [0], "all of the tags");
    assert_eq!(found(tagged(&["ga"])).await, [0; 0], "a tag is whole");
    assert_eq!(found(words("WOOL, price!")).await, [2, 0, 1], "those with most of the words, then the newer");
    assert_eq!(found(words("berg")).await, [1], "the beginning of a word will do");
    assert_eq!(found(words("\u{c9}CRIT")).await, [3], "in any case");
    assert_eq!(found(words("suppliers clarification")).await, [2], "tags have words too");
    assert_eq!(found(words("' OR 1=1 -- * %")).await, [0; 0]);
    assert_eq!(found(AnnotationFilter { words: words_of("wool"), ..tagged(&["supplier"]) }).await, [1]);
    let remark = store.find_annotations(tagged(&["supplier"])).await.expect("can be read").remove(0);
    assert_eq!((remark.job, remark.author.as_str(), remark.text.as_str()), (jobs[1], "r", "Wool comes from Bergen"));
    assert_eq!((remark.tags.as_slice(), remark.created_at), (&["supplier".to_owned()][..], T0));
}

pub async fn annotations_are_tagged_later(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    let remark = NewAnnotation { text: "the price is missing".into(), tags: vec!["gap".into(), "why".into()] };
    let id = store.annotate(lease.job, "r".into(), remark, T0).await.expect("is saved");
    let tagging = |add: &[&str], remove: &[&str]| {
        let owned = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
        Tagging { add: owned(add), remove: owned(remove) }
    };
    let found = async |tag: &str| {
        let filter = AnnotationFilter { tags: vec![tag.into()], limit: 9, ..AnnotationFilter::default() };
        store.find_annotations(filter).await.expect("can be read").len()
    };
    for _ in 0..2 {
        let by = Some(lease);
        let tagged = store.tag_annotation(id, tagging(&["seen", "gap"], &["why"]), by).await.expect("is tagged");
        assert_eq!(tagged.expect("is there").tags, ["gap", "seen"]);
    }
    assert_eq!((found("seen").await, found("gap").await, found("why").await), (1, 1, 0));
    assert_eq!(store.annotations(lease.job).await.expect("can be read")[0].tags, ["gap", "seen"]);
    assert_eq!(store.tag_annotation(99, tagging(&["x"], &[]), None).await.expect("is no error"), None);
    let many: Vec<_> = (0..16).map(|n| n.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert!(store.tag_annotation(id, tagging(&many, &[]), None).await.is_err());
    finish(&*store, lease, Event::Complete, T0).await;
    assert!(is_lost(store.tag_annotation(id, tagging(&["late"], &[]), Some(lease)).await, lease.job));
    assert_eq!((found("0").await, found("late").await), (0, 0));
}

pub async fn large_parts_are_read_back(store: Arc<dyn Store>) {
    for size in [0, 2047, 2048, 2049, 100_000, 3_000_000] {
        let lease = running(&*store, "r", T0).await;
        let entries = vec![began(&"s".repeat(size)), ended("x", CallOutcome::Done, &"t".repeat(size))];
        store.append(lease, 0, entries.clone(), T0).await.expect("is saved");
        assert_eq!(read(&*store, lease.job).await, entries, "{size} bytes");
    }
}
