//! Questions to people: asked by a run's entry, settled by anybody.

use std::sync::Arc;

use posse_core::job::lease::{Lease, WorkerId};
use posse_core::job::question::{Answered, Question, QuestionId, QuestionState};
use posse_core::job::transition::Event;
use posse_core::job::{JobId, JobState};
use posse_core::port::{Ending, QuestionFilter, RepositoryError};
use posse_core::run::journal::{EndStatus, Entry};

use super::{Expire as _, LEASE, Store, T0, claim, ending, get, is_lost, note, running};

fn asked(questions: &[&str], open_ms: Option<u64>) -> Entry {
    let questions = questions.iter().map(|question| (*question).to_owned()).collect();
    Entry::Asked { call_id: "c00000000".into(), questions, open_ms }
}

/// Ends the attempt of `lease` with questions.
pub async fn ask(store: &dyn Store, lease: Lease, questions: &[&str], open_ms: Option<u64>) -> JobState {
    let seq = store.journal(lease.job, 0).await.expect("can be read").len() as u64;
    let end = Ending { entries: vec![asked(questions, open_ms)], seq, ..ending(Event::Suspend, T0) };
    store.finish(lease, end, T0).await.expect("the lease stands")
}

/// A job of role `r` that waits for answers.
async fn waiting(store: &dyn Store, questions: &[&str], open_ms: Option<u64>) -> JobId {
    let lease = running(store, "r", T0).await;
    assert_eq!(ask(store, lease, questions, open_ms).await, JobState::Suspended);
    lease.job
}

async fn all(store: &dyn Store, job: JobId) -> Vec<Question> {
    let filter = QuestionFilter { settled: true, job: Some(job), limit: 100 };
    store.questions(filter).await.expect("can be read")
}

async fn open(store: &dyn Store) -> Vec<String> {
    let filter = QuestionFilter { limit: 100, ..QuestionFilter::default() };
    store.questions(filter).await.expect("can be read").into_iter().map(|question| question.text).collect()
}

async fn answer(store: &dyn Store, id: QuestionId, text: &str) -> Option<Answered> {
    store.answer(id, text.into(), "kim".into(), T0 + 7).await.expect("works")
}

pub async fn questions_are_saved_with_their_entry(store: Arc<dyn Store>) {
    let job = waiting(&*store, &["Blue or green?", "Which ship?"], Some(60_000)).await;
    let questions = all(&*store, job).await;
    let texts: Vec<_> = questions.iter().map(|question| question.text.as_str()).collect();
    assert_eq!(texts, ["Blue or green?", "Which ship?"]);
    for question in &questions {
        assert_eq!((question.job, question.role.as_str(), question.state), (job, "r", QuestionState::Open));
        assert_eq!((question.created_at, question.expires_at, question.settled_at), (T0, Some(T0 + 60_000), None));
        assert_eq!(store.question(question.id).await.expect("can be read").as_ref(), Some(question));
    }
    let remarks = store.annotations(job).await.expect("can be read");
    assert_eq!(remarks.len(), 1);
    assert_eq!((remarks[0].author.as_str(), remarks[0].text.as_str()), ("r", "Blue or green?\nWhich ship?"));
    assert_eq!(remarks[0].tags, ["clarification_needed".to_owned(), format!("job:{job}")]);
}

pub async fn nothing_is_held_while_a_job_waits(store: Arc<dyn Store>) {
    let job = waiting(&*store, &["Blue?"], None).await;
    let stored = get(&*store, job).await;
    assert_eq!((stored.state, stored.lease_until, stored.attempt), (JobState::Suspended, None, 0));
    assert_eq!(store.next_lease_end().await.expect("can be read"), None);
    assert_eq!(store.next_expiry().await.expect("can be read"), None, "it is open for ever");
    assert!(store.rescue(vec![WorkerId("w1".into())], T0 + LEASE * 2).await.expect("works").is_empty());
    assert!(claim(&*store, "r", 1, T0 + LEASE * 2).await.is_empty());
}

pub async fn a_job_goes_on_once_all_its_questions_are_answered(store: Arc<dyn Store>) {
    let job = waiting(&*store, &["Blue?", "Ship?"], None).await;
    let questions = all(&*store, job).await;
    let last = answer(&*store, questions[1].id, "Clio").await;
    assert_eq!(last, Some(Answered::Accepted { job, open: 1 }));
    assert_eq!(get(&*store, job).await.state, JobState::Suspended);
    assert_eq!(open(&*store).await, ["Blue?"]);
    assert_eq!(answer(&*store, questions[0].id, "blue").await, Some(Answered::Accepted { job, open: 0 }));
    let stored = get(&*store, job).await;
    assert_eq!((stored.state, stored.reason), (JobState::Available, None));
    let told: Vec<_> =
        store.journal(job, 1).await.expect("can be read").into_iter().map(|r| (r.seq, r.entry)).collect();
    let answered = |question, text: &str| Entry::Answered { question, answer: Some(text.into()) };
    assert_eq!(told, [(1, answered(1, "Clio")), (2, answered(0, "blue"))]);
    let settled = all(&*store, job).await;
    assert_eq!((settled[0].answer.as_deref(), settled[0].settled_by.as_deref()), (Some("blue"), Some("kim")));
    assert_eq!((settled[0].state, settled[0].settled_at), (QuestionState::Answered, Some(T0 + 7)));
    let lease = claim(&*store, "r", 1, T0 + 8).await[0].lease;
    store.append(lease, 3, vec![note("goes on")], T0 + 8).await.expect("behind the answers");
}

pub async fn a_question_is_settled_once(store: Arc<dyn Store>) {
    let job = waiting(&*store, &["Blue?", "Ship?"], None).await;
    let id = all(&*store, job).await[0].id;
    answer(&*store, id, "blue").await;
    let before = super::everything(&*store, job).await;
    let Some(Answered::Settled { question }) = answer(&*store, id, "green").await else { panic!("taken twice") };
    assert_eq!((question.state, question.answer.as_deref()), (QuestionState::Answered, Some("blue")));
    assert_eq!(super::everything(&*store, job).await, before);
    assert_eq!(answer(&*store, QuestionId(77), "what?").await, None, "there is no such question");
}

pub async fn answers_race_to_one(store: Arc<dyn Store>) {
    for round in 0..50 {
        let job = waiting(&*store, &["Blue?"], None).await;
        let id = all(&*store, job).await[0].id;
        let start = Arc::new(tokio::sync::Barrier::new(4));
        let racers: Vec<_> = (0..4)
            .map(|n| {
                let (store, start) = (Arc::clone(&store), Arc::clone(&start));
                tokio::spawn(async move {
                    start.wait().await;
                    answer(&*store, id, &format!("answer {n}")).await.expect("there is one")
                })
            })
            .collect();
        let mut accepted = 0;
        for racer in racers {
            accepted += usize::from(matches!(racer.await.expect("ends"), Answered::Accepted { .. }));
        }
        assert_eq!(accepted, 1, "round {round}");
        assert_eq!(store.journal(job, 0).await.expect("can be read").len(), 2, "round {round}");
        assert_eq!(claim(&*store, "r", 9, T0).await.len(), 1, "it goes on once");
    }
}

pub async fn questions_expire_at_their_time(store: Arc<dyn Store>) {
    let job = waiting(&*store, &["Blue?", "Ship?"], Some(1_000)).await;
    let other = waiting(&*store, &["Port?"], None).await;
    assert_eq!(store.next_expiry().await.expect("can be read"), Some(T0 + 1_000));
    assert_eq!(store.expire_questions(T0 + 999).await.expect("works"), 0);
    answer(&*store, all(&*store, job).await[0].id, "blue").await;
    assert_eq!(store.expire_questions(T0 + 1_000).await.expect("works"), 1, "the one that is answered stays so");
    assert_eq!(get(&*store, job).await.state, JobState::Available);
    assert_eq!(get(&*store, other).await.state, JobState::Suspended);
    let states: Vec<_> = all(&*store, job).await.into_iter().map(|question| question.state).collect();
    assert_eq!(states, [QuestionState::Answered, QuestionState::Expired]);
    let last = store.journal(job, 0).await.expect("can be read").pop().expect("an entry");
    assert_eq!(last.entry, Entry::Answered { question: 1, answer: None });
    let late = answer(&*store, all(&*store, job).await[1].id, "Clio").await;
    assert!(matches!(late, Some(Answered::Settled { .. })), "{late:?}");
    assert_eq!(store.next_expiry().await.expect("can be read"), None);
    assert_eq!(store.expire_questions(T0 + 1_000_000).await.expect("works"), 0);
}

pub async fn a_cancelled_job_asks_nothing_and_a_retried_one_asks_again(store: Arc<dyn Store>) {
    let job = waiting(&*store, &["Blue?", "Ship?"], None).await;
    let ids: Vec<_> = all(&*store, job).await.into_iter().map(|question| question.id).collect();
    answer(&*store, ids[0], "blue").await;
    store.cancel(job, "enough".into(), T0 + 8).await.expect("is cancelled");
    assert!(open(&*store).await.is_empty());
    let Some(Answered::Settled { question }) = answer(&*store, ids[1], "Clio").await else { panic!("it is closed") };
    assert_eq!((question.state, question.settled_at), (QuestionState::Closed, Some(T0 + 8)));
    assert_eq!(get(&*store, job).await.state, JobState::Cancelled);

    store.retry(job, T0 + 9).await.expect("runs again");
    let lease = claim(&*store, "r", 1, T0 + 9).await[0].lease;
    // Its run finds that it waits, and says so without a new entry.
    let seq = store.journal(job, 0).await.expect("can be read").len() as u64;
    let end = Ending { seq, ..ending(Event::Suspend, T0 + 9) };
    assert_eq!(store.finish(lease, end, T0 + 9).await.expect("the lease stands"), JobState::Suspended);
    assert_eq!(open(&*store).await, ["Ship?"], "the one that is answered stays so");
    let answered = store.answer(ids[1], "Clio".into(), "kim".into(), T0 + 10).await.expect("works");
    assert_eq!(answered, Some(Answered::Accepted { job, open: 0 }));
    assert_eq!(get(&*store, job).await.state, JobState::Available);
}

pub async fn a_job_that_is_cancelled_while_it_asks_asks_nothing(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    store.cancel(lease.job, "enough".into(), T0).await.expect("is asked for");
    assert_eq!(ask(&*store, lease, &["Blue?"], Some(1_000)).await, JobState::Cancelled);
    assert!(open(&*store).await.is_empty());
    let question = all(&*store, lease.job).await.remove(0);
    assert_eq!(question.state, QuestionState::Closed);
    assert!(matches!(answer(&*store, question.id, "blue").await, Some(Answered::Settled { .. })));
    assert_eq!(store.expire_questions(T0 + 9_000).await.expect("works"), 0);
    store.retry(lease.job, T0 + 9).await.expect("runs again");
    let lease = claim(&*store, "r", 1, T0 + 9).await[0].lease;
    let end = Ending { seq: 1, ..ending(Event::Suspend, T0 + 9) };
    store.finish(lease, end, T0 + 9).await.expect("the lease stands");
    assert_eq!(open(&*store).await, ["Blue?"]);
}

pub async fn only_the_holder_of_the_lease_asks(store: Arc<dyn Store>) {
    let stale = running(&*store, "r", T0).await;
    store.rescue(vec![WorkerId("w1".into())], T0 + 1).await.expect("works");
    let lease = claim(&*store, "r", 1, T0 + 1).await[0].lease;
    let end = Ending { entries: vec![asked(&["Blue?"], None)], ..ending(Event::Suspend, T0) };
    assert!(is_lost(store.finish(stale, end.clone(), T0 + 2).await, stale.job));
    assert!(all(&*store, stale.job).await.is_empty());
    assert!(store.annotations(stale.job).await.expect("can be read").is_empty());
    let gap = Ending { seq: 3, ..end.clone() };
    let refused = store.finish(lease, gap, T0 + 2).await;
    assert!(matches!(refused, Err(RepositoryError::Misused(_))), "{refused:?}");
    assert!(all(&*store, stale.job).await.is_empty(), "all or nothing");
    assert_eq!(store.finish(lease, end, T0 + 2).await.expect("the lease stands"), JobState::Suspended);
    assert_eq!(all(&*store, stale.job).await.len(), 1);
}

pub async fn what_leaves_a_conversation_is_archived_once(store: Arc<dyn Store>) {
    let lease = running(&*store, "r", T0).await;
    for content in ["the first part", "the first part"] {
        store.archive(lease, 4, content.into(), T0).await.expect("is kept");
    }
    store.archive(lease, 9, "the second part".into(), T0).await.expect("is kept");
    let ended = Entry::Ended { status: EndStatus::Completed, text: "ok".into(), reason: None };
    let end = Ending { entries: vec![ended], ..ending(Event::Complete, T0) };
    store.finish(lease, end, T0).await.expect("the lease stands");
    assert!(is_lost(store.archive(lease, 10, "too late".into(), T0).await, lease.job));
    let kept = store.archived(lease.job).await.expect("can be read");
    assert_eq!(kept, [(4, "the first part".to_owned()), (9, "the second part".to_owned())]);
}
