//! Conversations: which jobs belong together, and what was said.

use std::sync::Arc;

use super::*;
use posse_core::session::{NewSession, Session, SessionId, Stretch};

async fn begin(store: &dyn Store, name: Option<&str>, role: &str, now: Millis) -> (Session, bool) {
    let new = NewSession { name: name.map(str::to_owned), role: role.into() };
    store.begin_session(new, now).await.expect("begins")
}

fn turn(session: SessionId, role: &str, goal: &str) -> NewJob {
    let payload = Payload { goal: goal.into(), session: Some(session), ..Payload::default() };
    NewJob { payload, ..job(role) }
}

async fn say(store: &dyn Store, session: &Session, goal: &str, now: Millis) -> JobId {
    store.enqueue(vec![turn(session.id, &session.role, goal)], now).await.expect("is stored")[0].id
}

pub async fn a_job_becomes_a_turn_with_its_enqueue(store: Arc<dyn Store>) {
    let (session, is_new) = begin(&*store, None, "r", T0).await;
    assert!(is_new && session.turns == 0 && session.previous.is_none());
    enqueue(&*store, "r", T0).await;
    let first = say(&*store, &session, "hello", T0 + 1).await;
    let second = say(&*store, &session, "and now?", T0 + 2).await;
    let turns = store.session_turns(session.id, None).await.expect("can be read");
    let said: Vec<_> = turns.iter().map(|turn| (turn.job, turn.goal.as_str(), turn.said_at)).collect();
    assert_eq!(said, [(first, "hello", T0 + 1), (second, "and now?", T0 + 2)]);
    assert_eq!(store.session_turns(session.id, Some(second)).await.expect("can be read"), turns[..1]);
    assert_eq!(get(&*store, first).await.payload.session, Some(session.id));
    let stored = store.session(session.id).await.expect("can be read").expect("is there");
    assert_eq!((stored.turns, stored.created_at, stored.used_at), (2, T0, T0 + 2));
    assert_eq!(store.session(SessionId(99)).await.expect("can be read"), None);
}

pub async fn a_session_takes_only_jobs_of_its_role(store: Arc<dyn Store>) {
    let (session, _) = begin(&*store, Some("ada"), "r", T0).await;
    for (wrong, words) in
        [(turn(session.id, "other", "x"), "is with r, not with other"), (turn(SessionId(9), "r", "x"), "no session 9")]
    {
        let both = vec![job("r"), wrong];
        let error = store.enqueue(both, T0).await.expect_err("is refused");
        assert!(matches!(&error, RepositoryError::Refused(why) if why.contains(words)), "{error:?}");
    }
    assert!(claim(&*store, "r", 9, T0).await.is_empty(), "all or none");
    assert!(store.session_turns(session.id, None).await.expect("can be read").is_empty());
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
    assert_eq!(store.session_named("Ada".into()).await.expect("can be read"), None);
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

pub async fn turns_say_how_far_they_came(store: Arc<dyn Store>) {
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
        let turns = store.session_turns(session.id, None).await.expect("can be read");
        assert_eq!(turns.last().expect("a turn").reply(), wanted, "{event:?}");
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
