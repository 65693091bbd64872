//! Conversations: which jobs belong together, and what was said.

use std::sync::Arc;

use super::care::prune_kept;
use super::journals::began;
use super::*;
use posse_core::memory::{Forgetting, MemoryFilter, MemoryId, PERSON};
use posse_core::queue::retention::Kept;
use posse_core::session::{NewSession, Session, SessionId, Stretch};

const DAY: Millis = 86_400_000;

async fn begin(store: &dyn Store, name: Option<&str>, role: &str, now: Millis) -> (Session, bool) {
    let new = NewSession { name: name.map(str::to_owned), role: role.into() };
    store.begin_session(new, now).await.expect("begins")
}

fn exchange(session: SessionId, role: &str, goal: &str) -> NewJob {
    let payload = Payload { goal: goal.into(), session: Some(session), ..Payload::default() };
    NewJob { payload, ..job(role) }
}

async fn say(store: &dyn Store, session: &Session, goal: &str, now: Millis) -> JobId {
    store.enqueue(vec![exchange(session.id, &session.role, goal)], now).await.expect("is stored")[0].id
}

pub async fn a_job_becomes_an_exchange_with_its_enqueue(store: Arc<dyn Store>) {
    let (session, is_new) = begin(&*store, None, "r", T0).await;
    assert!(is_new && session.exchanges == 0 && session.previous.is_none());
    enqueue(&*store, "r", T0).await;
    let first = say(&*store, &session, "hello", T0 + 1).await;
    let second = say(&*store, &session, "and now?", T0 + 2).await;
    let exchanges = store.exchanges(session.id, None).await.expect("can be read");
    let said: Vec<_> =
        exchanges.iter().map(|exchange| (exchange.job, exchange.goal.as_str(), exchange.said_at)).collect();
    assert_eq!(said, [(first, "hello", T0 + 1), (second, "and now?", T0 + 2)]);
    assert_eq!(store.exchanges(session.id, Some(second)).await.expect("can be read"), exchanges[..1]);
    assert_eq!(get(&*store, first).await.payload.session, Some(session.id));
    let stored = store.session(session.id).await.expect("can be read").expect("is there");
    assert_eq!((stored.exchanges, stored.created_at, stored.used_at), (2, T0, T0 + 2));
    assert_eq!(store.session(SessionId(99)).await.expect("can be read"), None);
}

pub async fn a_session_takes_only_jobs_of_its_role(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, Some("ada"), "r", T0).await;
    for (wrong, words) in [
        (exchange(session.id, "other", "x"), "is with r, not with other"),
        (exchange(SessionId(9), "r", "x"), "no session 9"),
    ] {
        let both = vec![job("r"), wrong];
        let error = store.enqueue(both, T0).await.expect_err("is refused");
        assert!(matches!(&error, RepositoryError::Refused(why) if why.contains(words)), "{error:?}");
    }
    assert!(claim(&*store, "r", 9, T0).await.is_empty(), "all or none");
    assert!(store.exchanges(session.id, None).await.expect("can be read").is_empty());
}

pub async fn a_name_is_one_session_whoever_begins_it(store: Arc<dyn Store>) {
    let together: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { begin(&*store, Some("ada"), "r", T0).await })
        })
        .collect();
    let mut begun = Vec::new();
    for one in together {
        begun.push(one.await.expect("ends"));
    }
    assert_eq!(begun.iter().filter(|(_, is_new)| *is_new).count(), 1);
    assert!(begun.iter().all(|(session, _)| session.id == begun[0].0.id));
    let named = store.session_named("ada".into()).await.expect("can be read").expect("is there");
    assert_eq!(named, begun[0].0);
    assert_eq!(store.session_named("Eve".into()).await.expect("can be read"), None);
}

pub async fn a_session_remembers_the_one_used_last(store: Arc<dyn Store>) {
    let (first, _) = begin(&*store, None, "r", T0).await;
    let (other, _) = begin(&*store, None, "s", T0 + 1).await;
    say(&*store, &other, "not this", T0 + 2).await;
    let (second, _) = begin(&*store, None, "r", T0 + 3).await;
    assert_eq!(second.previous, None, "nothing was said in the first");
    let last = say(&*store, &first, "hello", T0 + 4).await;
    let (third, _) = begin(&*store, None, "r", T0 + 5).await;
    assert_eq!(third.previous, Some(Stretch { session: first.id, through: last }));
    let (fourth, _) = begin(&*store, None, "r", T0 + 6).await;
    assert_eq!(fourth.previous, third.previous, "one in which nothing was said hands on what it remembers");
    say(&*store, &first, "more", T0 + 7).await;
    let stored = store.session(third.id).await.expect("can be read").expect("is there");
    assert_eq!(stored.previous, third.previous, "fixed when it began");
    let listed = |role: Option<&str>| store.sessions(role.map(str::to_owned), 2);
    let ids = |sessions: Vec<Session>| sessions.iter().map(|session| session.id).collect::<Vec<_>>();
    assert_eq!(ids(listed(Some("r")).await.expect("can be read")), [first.id, fourth.id]);
    assert_eq!(ids(listed(Some("s")).await.expect("can be read")), [other.id]);
    assert_eq!(ids(listed(None).await.expect("can be read")), [first.id, fourth.id]);
}

pub async fn exchanges_say_how_far_they_came(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, None, "r", T0).await;
    for (event, wanted) in [
        (Event::Complete, "the answer"),
        (Event::Cancel, "(interrupted)\nthe answer"),
        (Event::GiveUp, "(not finished: as it happened)\nthe answer"),
        (Event::Suspend, "(no answer yet)"),
    ] {
        say(&*store, &session, "x", T0).await;
        let lease = claim(&*store, "r", 1, T0).await[0].lease;
        let reason = (event != Event::Complete).then(|| "as it happened".to_owned());
        let end = Ending { output: Some(output("the answer")), reason, ..ending(event, T0) };
        store.finish(lease, end, T0).await.expect("finishes");
        let exchanges = store.exchanges(session.id, None).await.expect("can be read");
        assert_eq!(exchanges.last().expect("an exchange").reply(), wanted, "{event:?}");
    }
}

pub async fn the_first_summary_stays(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, None, "r", T0).await;
    let job = say(&*store, &session, "x", T0).await;
    let stretch = Stretch { session: session.id, through: job };
    assert_eq!(store.session_summary(stretch).await.expect("can be read"), None);
    assert_eq!(store.keep_summary(stretch, "first".into(), T0).await.expect("is kept"), "first");
    assert_eq!(store.keep_summary(stretch, "second".into(), T0).await.expect("is kept"), "first");
    assert_eq!(store.session_summary(stretch).await.expect("can be read").as_deref(), Some("first"));
    let later = Stretch { through: JobId(job.0 + 1), ..stretch };
    assert_eq!(store.keep_summary(later, "of more".into(), T0).await.expect("is kept"), "of more");
    let nowhere = Stretch { session: SessionId(9), ..stretch };
    let error = store.keep_summary(nowhere, "x".into(), T0).await.expect_err("is refused");
    assert!(matches!(error, RepositoryError::Refused(_)), "{error:?}");
}

/// Says something that is answered at `at`.
async fn talk(store: &dyn Store, session: &Session, goal: &str, at: Millis) -> JobId {
    let id = say(store, session, goal, at).await;
    let lease = claim(store, &session.role, 1, at).await[0].lease;
    assert_eq!(lease.job, id);
    let end = Ending { output: Some(output("the answer")), ..ending(Event::Complete, at) };
    store.finish(lease, end, at).await.expect("finishes");
    id
}

async fn goals(store: &dyn Store, session: SessionId) -> Vec<String> {
    let exchanges = store.exchanges(session, None).await.expect("can be read");
    exchanges.into_iter().map(|exchange| exchange.goal).collect()
}

async fn is_there(store: &dyn Store, session: SessionId) -> bool {
    store.session(session).await.expect("can be read").is_some()
}

pub async fn exchanges_are_kept_as_long_as_their_session(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, Some("ada"), "r", T0).await;
    let first = talk(&*store, &session, "I am Ada", T0).await;
    store.set_retention(vec![(Kept::Completed, Some(DAY)), (Kept::Sessions, Some(100 * DAY))]).await.expect("is set");
    let plain = running(&*store, "r", T0).await;
    finish(&*store, plain, Event::Complete, T0).await;
    talk(&*store, &session, "and now?", T0 + 50 * DAY).await;
    // Answered long after it was said: it counts from then.
    say(&*store, &session, "slowly", T0 + 51 * DAY).await;
    let lease = claim(&*store, "r", 1, T0 + 51 * DAY).await[0].lease;
    finish(&*store, lease, Event::Complete, T0 + 90 * DAY).await;

    let gone = prune_kept(&*store, T0 + 120 * DAY).await;
    assert_eq!((gone.jobs, gone.sessions), (1, 0), "the job that is no exchange");
    assert_eq!(goals(&*store, session.id).await, ["I am Ada", "and now?", "slowly"]);
    assert!(!store.has_prunable(T0 + 190 * DAY).await.expect("can be read"));
    assert!(store.has_prunable(T0 + 190 * DAY + 1).await.expect("can be read"));
    let gone = prune_kept(&*store, T0 + 190 * DAY + 1).await;
    assert_eq!((gone.jobs, gone.sessions), (3, 1));
    assert!(!is_there(&*store, session.id).await);
    assert_eq!(store.job(first).await.expect("can be read"), None);
    let (again, is_new) = begin(&*store, Some("ada"), "r", T0 + 191 * DAY).await;
    assert!(is_new && again.id > session.id, "the name is free, and its number is not given out again");
    assert_eq!(again.previous, None);

    store.set_retention(vec![(Kept::Sessions, None)]).await.expect("is set");
    assert_eq!(prune_kept(&*store, T0 + 9_000 * DAY).await.sessions, 0, "for ever");
}

pub async fn a_session_that_is_remembered_is_kept_for_the_one_that_does(store: Arc<dyn Store>) {
    let (first, _) = begin(&*store, None, "r", T0).await;
    talk(&*store, &first, "one", T0).await;
    let (second, _) = begin(&*store, None, "r", T0 + 1).await;
    talk(&*store, &second, "two", T0 + 1).await;
    let (third, _) = begin(&*store, None, "r", T0 + 2).await;
    talk(&*store, &third, "three", T0 + 50 * DAY).await;
    store.set_retention(vec![(Kept::Sessions, Some(10 * DAY))]).await.expect("is set");
    let gone = prune_kept(&*store, T0 + 55 * DAY).await;
    assert_eq!((gone.jobs, gone.sessions), (1, 1));
    let there = [is_there(&*store, first.id).await, is_there(&*store, second.id).await];
    assert_eq!(there, [false, true], "what the third remembers stays, and no chain of those before it");
    let third = store.session(third.id).await.expect("can be read").expect("is there");
    assert_eq!(third.previous.map(|stretch| stretch.session), Some(second.id));
    // An exchange that waits for a person is nothing that is over.
    say(&*store, &third, "four", T0 + 55 * DAY).await;
    assert_eq!(prune_kept(&*store, T0 + 900 * DAY).await.sessions, 1);
    assert!(is_there(&*store, third.id).await && !is_there(&*store, second.id).await);
}

pub async fn what_was_asked_on_the_way_is_told(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, None, "r", T0).await;
    let job = say(&*store, &session, "count them", T0).await;
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    store.append(lease, 0, vec![began("s")], T0).await.expect("is saved");
    super::questions::ask(store.as_ref(), lease, &["Which?", "How deep?"], None).await;
    let filter = posse_core::port::QuestionFilter { settled: false, job: Some(job), limit: 9 };
    let open = store.questions(filter).await.expect("can be read");
    store.answer(open[0].id, "all".into(), "ada".into(), T0).await.expect("is saved");
    let exchanges = store.exchanges(session.id, None).await.expect("can be read");
    let told: Vec<_> = exchanges[0].asked.iter().map(|asked| (asked.question.as_str(), asked.told())).collect();
    assert_eq!(told, [("Which?", "all"), ("How deep?", "(no answer yet)")]);
    store.cancel(job, "enough".into(), T0).await.expect("is cancelled");
    let exchanges = store.exchanges(session.id, None).await.expect("can be read");
    assert_eq!(exchanges[0].asked[1].told(), "(nobody answered)");
}

pub async fn names_that_differ_in_case_are_one(store: Arc<dyn Store>) {
    let (ada, _) = begin(&*store, Some("ada"), "r", T0).await;
    let (same, is_new) = begin(&*store, Some("ADA"), "r", T0).await;
    assert_eq!((same.id, is_new), (ada.id, false));
    let found = store.session_named("Ada".into()).await.expect("can be read").expect("is there");
    assert_eq!((found.id, found.name.as_deref()), (ada.id, Some("ada")));
}

pub async fn a_deleted_session_is_gone_whole(store: Arc<dyn Store>) {
    let (first, _) = begin(&*store, Some("ada"), "r", T0).await;
    for n in 0..450 {
        talk(&*store, &first, &format!("{n}"), T0).await;
    }
    let last = store.exchanges(first.id, None).await.expect("can be read").pop().expect("an exchange").job;
    let (second, _) = begin(&*store, None, "r", T0 + 1).await;
    let stretch = second.previous.expect("remembers");
    store.keep_summary(stretch, "They talked.".into(), T0).await.expect("is kept");
    assert_eq!(store.delete_session(first.id, T0 + 2).await.expect("works"), Some(450));
    assert_eq!(store.delete_session(first.id, T0 + 2).await.expect("works"), None);
    assert_eq!(store.session_named("ada".into()).await.expect("can be read"), None);
    assert_eq!(store.job(last).await.expect("can be read"), None);
    assert_eq!(store.session_summary(stretch).await.expect("can be read"), None);
    let second = store.session(second.id).await.expect("can be read").expect("is there");
    assert_eq!(second.previous, None, "nobody remembers it");
    assert!(!store.has_prunable(T0 + 3).await.expect("can be read"), "nothing is left of it");
    let error = store.enqueue(vec![exchange(first.id, "r", "more")], T0 + 3).await.expect_err("is refused");
    assert!(matches!(&error, RepositoryError::Refused(why) if why.contains("no session")), "{error:?}");
}

pub async fn what_is_open_or_waited_for_is_not_deleted(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, Some("ada"), "r", T0).await;
    let open = say(&*store, &session, "hello", T0).await;
    let refused =
        |error: RepositoryError| matches!(&error, RepositoryError::Refused(why) if why.contains(&open.to_string()));
    assert!(refused(store.delete_session(session.id, T0).await.expect_err("is open")));
    let after = NewJob {
        after: vec![posse_core::job::dependency::After::Job(open)],
        on_failed: posse_core::job::dependency::OnFailed::Wait,
        ..job("r")
    };
    let waits = enqueue_all(&*store, vec![after], T0).await[0];
    store.cancel(open, "enough".into(), T0).await.expect("is cancelled");
    assert!(refused(store.delete_session(session.id, T0).await.expect_err("is waited for")));
    store.set_retention(vec![(Kept::Sessions, Some(0))]).await.expect("is set");
    assert_eq!(prune_kept(&*store, T0 + DAY).await.sessions, 0);
    store.cancel(waits, "enough".into(), T0).await.expect("is cancelled");
    assert_eq!(store.delete_session(session.id, T0).await.expect("works"), Some(1));
}

pub async fn an_exchange_deleted_by_hand_is_in_no_summary(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, None, "r", T0).await;
    let first = talk(&*store, &session, "kept", T0).await;
    let second = talk(&*store, &session, "a secret", T0).await;
    let of = |through| Stretch { session: session.id, through };
    store.keep_summary(of(first), "Of one.".into(), T0).await.expect("is kept");
    store.keep_summary(of(second), "There was a secret.".into(), T0).await.expect("is kept");
    store.change(vec![second], posse_core::job::change::Change::Delete, T0).await.expect("works");
    assert_eq!(store.session_summary(of(second)).await.expect("can be read"), None);
    assert_eq!(store.session_summary(of(first)).await.expect("can be read").as_deref(), Some("Of one."));
    assert_eq!(goals(&*store, session.id).await, ["kept"]);
}

pub async fn what_is_said_supersedes_what_has_no_answer(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, None, "r", T0).await;
    let (other, _) = begin(&*store, None, "r", T0).await;
    talk(&*store, &session, "answered", T0).await;
    let elsewhere = say(&*store, &other, "elsewhere", T0).await;
    store.cancel(elsewhere, "enough".into(), T0).await.expect("is cancelled");
    let at_work = say(&*store, &session, "at work", T0).await;
    let lease = claim(&*store, "r", 1, T0).await[0].lease;
    store.append(lease, 0, vec![began("s")], T0).await.expect("is saved");
    let planned = NewJob { run_at: Some(T0 + DAY), ..exchange(session.id, "r", "planned") };
    let planned = enqueue_all(&*store, vec![planned], T0).await[0];
    let waiting = say(&*store, &session, "waiting", T0 + 1).await;
    let newest = say(&*store, &session, "newest", T0 + 2).await;

    let running = get(&*store, at_work).await;
    let why = |by: JobId| Some(format!("superseded by job {by}, which was said after it"));
    assert_eq!((running.state, running.cancel_requested), (JobState::Running, true), "its worker ends it");
    let end = Ending { output: Some(output("It is fo")), seq: 1, ..ending(Event::Cancel, T0) };
    assert_eq!(store.finish(lease, end, T0 + 3).await.expect("ends"), JobState::Cancelled);
    let ended = get(&*store, at_work).await;
    assert_eq!(ended.reason, why(waiting), "the first that was said after it, and not what is planned");
    let skipped = get(&*store, waiting).await;
    assert_eq!((skipped.state, skipped.reason), (JobState::Cancelled, why(newest)));
    let states = [get(&*store, planned).await.state, get(&*store, newest).await.state];
    assert_eq!(states, [JobState::Scheduled, JobState::Available]);
    let exchanges = store.exchanges(session.id, None).await.expect("can be read");
    let replies: Vec<_> = exchanges.iter().map(posse_core::session::Exchange::reply).collect();
    let left = "(left for what was said next)";
    let wanted = ["the answer", "(left for what was said next)\nIt is fo", "(no answer yet)", left, "(no answer yet)"];
    assert_eq!(replies, wanted);
}

/// Older turns are found when a summary stands for them, once, and as long as their session is there.
pub async fn turns_that_are_summed_up_are_remembered(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, Some("ada"), "r", T0).await;
    let first = talk(&*store, &session, "where is the ladder?", T0).await;
    let second = say(&*store, &session, "and the key?", T0 + 1).await;
    let lease = claim(&*store, "r", 1, T0 + 1).await[0].lease;
    store.append(lease, 0, vec![began("s")], T0 + 1).await.expect("is saved");
    super::questions::ask(store.as_ref(), lease, &["Which key?"], None).await;
    let filter = posse_core::port::QuestionFilter { settled: false, job: Some(second), limit: 9 };
    let open = store.questions(filter).await.expect("can be read").remove(0).id;
    store.answer(open, "that of the shed".into(), "ada".into(), T0 + 2).await.expect("is saved");
    let lease = claim(&*store, "r", 1, T0 + 2).await[0].lease;
    finish(&*store, lease, Event::Complete, T0 + 3).await;
    let third = talk(&*store, &session, "thanks", T0 + 4).await;
    let texts = async || {
        let of = MemoryFilter { thread: Some(format!("session {}", session.id)), ..MemoryFilter::default() };
        let items = store.memory_items(of, MemoryId(i64::MAX), 99).await.expect("can be listed");
        items.into_iter().rev().map(|item| item.text).collect::<Vec<_>>()
    };
    assert_eq!(texts().await, [""; 0]);
    let keep = async |through: JobId, at| {
        let stretch = Stretch { session: session.id, through };
        store.keep_summary(stretch, "They talked.".into(), at).await.expect("is kept");
    };
    keep(second, T0 + 5).await;
    let told = ["where is the ladder?", "the answer", "and the key?", "Which key?", "that of the shed", "(no answer)"];
    assert_eq!(texts().await, told, "no more than it stands for");
    keep(second, T0 + 6).await;
    keep(third, T0 + 7).await;
    assert_eq!(texts().await.len(), 8, "each once");
    // With the one who said it, and with what was said next to it.
    let found = super::memory::search(&*store, "key of the shed", MemoryFilter::default()).await;
    let hit = &found.items[0].item;
    assert_eq!(
        (hit.text.as_str(), hit.origin.author.as_str(), hit.origin.job),
        ("that of the shed", PERSON, Some(second))
    );
    assert!(!hit.origin.untrusted && hit.created_at == T0 + 1, "{hit:?}");
    // Answers of which it is not known what was read for them are not vouched for.
    let of_agent = MemoryFilter { author: Some("r".into()), untrusted: Some(false), ..MemoryFilter::default() };
    assert_eq!(store.memory_items(of_agent, MemoryId(i64::MAX), 9).await.expect("can be listed"), []);
    // What a person has forgotten is not remembered again.
    let how = Forgetting { reason: "private".into(), erase: true };
    store.forget_memory(vec![hit.id], how, None, T0 + 8).await.expect("works");
    let fourth = talk(&*store, &session, "bye", T0 + 9).await;
    keep(fourth, T0 + 10).await;
    let left = texts().await;
    assert!(left.len() == 9 && !left.contains(&"that of the shed".to_owned()), "{left:?}");
    // An exchange goes by itself, and the rest with its session.
    store.change(vec![first], posse_core::job::change::Change::Delete, T0 + 11).await.expect("works");
    assert_eq!(texts().await.len(), 7);
    store.set_retention(vec![(Kept::Sessions, Some(10 * DAY))]).await.expect("is set");
    prune_kept(&*store, T0 + 5 * DAY).await;
    assert_eq!(texts().await.len(), 7);
    prune_kept(&*store, T0 + 11 * DAY).await;
    assert_eq!((texts().await.len(), is_there(&*store, session.id).await), (0, false));
}
