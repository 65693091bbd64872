//! Forks at work: from every step of a run to an end.

use std::sync::Arc;

use futures::StreamExt as _;
use posse_core::events::run::{Event, stream};
use posse_core::job::JobState;
use posse_core::model::{Message, ModelRequest};
use posse_core::port::{ForkRepository as _, JobQueries as _, QuestionFilter, QuestionRepository as _};
use posse_core::run::fork::{Cut, fork};
use posse_core::run::journal::Entry;
use posse_testing::scripted::{Play, ScriptedModel, text_reply};
use serde_json::json;

use super::kit::{Home, Worker};

/// A run with reading and changing calls, a refused one, and a question that Ada answers.
async fn recorded(home: &Home) -> posse_core::job::JobId {
    let model = ScriptedModel::new()
        .call(&[("read_file", json!({"path": "alpha.txt"})), ("read_file", json!({"path": "beta.txt"}))])
        .call(&[("create_file", json!({"path": "new.txt", "content": "x"})), ("no_such_tool", json!({}))])
        .call(&[("finish", json!({"final_summary": "", "clarifying_questions": ["Which one?"]}))])
        .say("ALPHA-7");
    let mut worker = Worker::start(home, Arc::new(model)).await;
    let id = home.enqueue("compare").await;
    worker.until_ended(id).await;
    let asked = home.store.questions(QuestionFilter { settled: false, job: Some(id), limit: 1 }).await.expect("read");
    home.store.answer(asked[0].id, "alpha".into(), "ada".into(), 3).await.expect("is saved");
    worker.until_ended(id).await;
    assert_eq!(home.job(id).await.state, JobState::Completed);
    worker.shut_down().await;
    id
}

#[tokio::test]
async fn a_fork_at_every_step_goes_on_to_an_end() {
    let home = Home::new();
    let source = recorded(&home).await;
    let journal = home.store.journal(source, 0).await.expect("can be read");
    let model = Arc::new(ScriptedModel::new().forever(|_: &ModelRequest| Play::Reply(text_reply("an end"))));
    let mut worker = Worker::start(&home, model.clone()).await;
    let end = journal.len() as u64 - 1;
    for at_step in 0..end {
        let job = home.job(source).await;
        let fork = fork(&job, journal.clone(), Cut { at_step, ..Cut::default() }).expect("can be forked");
        let id = home.store.fork(fork, 5).await.expect("is stored");
        worker.until_ended(id).await;
        if home.job(id).await.state == JobState::Suspended {
            let open = QuestionFilter { settled: false, job: Some(id), limit: 1 };
            let asked = home.store.questions(open).await.expect("can be read");
            home.store.answer(asked[0].id, "alpha".into(), "ada".into(), 6).await.expect("is saved");
            worker.until_ended(id).await;
        }
        let ended = home.job(id).await;
        assert_eq!((ended.state, ended.output.expect("an answer").text.as_str()), (JobState::Completed, "an end"));
        home.ledger(id).await;
    }
    let job = home.job(source).await;
    let refused =
        |at_step| fork(&job, journal.clone(), Cut { at_step, ..Cut::default() }).expect_err("refused").to_string();
    assert!(refused(end).contains("ends the run"), "{}", refused(end));
    assert!(refused(end + 1).contains(&format!("from 0 to {end}")), "{}", refused(end + 1));
    model.assert_clean();
}

#[tokio::test]
async fn an_edited_result_is_what_the_model_reads() {
    let home = Home::new();
    let source = recorded(&home).await;
    let journal = home.store.journal(source, 0).await.expect("can be read");
    let second = |entry: &Entry| matches!(entry, Entry::CallEnded { text, .. } if text.contains("BETA-9"));
    let at_step = journal.iter().find(|recorded| second(&recorded.entry)).expect("a result").seq;
    let model = Arc::new(ScriptedModel::new().say("an end"));
    let mut worker = Worker::start(&home, model.clone()).await;
    let cut = Cut { at_step, edit: Some("GAMMA-1".into()), goal: Some("compare anew".into()) };
    let fork = fork(&home.job(source).await, journal.clone(), cut).expect("can be forked");
    let id = home.store.fork(fork, 5).await.expect("is stored");
    worker.until_ended(id).await;
    let told = format!("{:?}", model.requests()[0].messages);
    assert!(told.contains("GAMMA-1") && told.contains("compare anew") && !told.contains("BETA-9"), "{told}");
    let turn = journal.iter().find(|recorded| matches!(recorded.entry, Entry::Turn(_))).expect("a turn").seq;
    let cut = Cut { at_step: turn, edit: Some("x".into()), goal: None };
    let refused =
        posse_core::run::fork::fork(&home.job(source).await, journal, cut).expect_err("a turn stays").to_string();
    assert!(refused.contains("only a tool's result"), "{refused}");
}

#[tokio::test]
async fn the_stream_of_a_job_ends_with_done() {
    let home = Home::new();
    let hangs = Arc::new(ScriptedModel::new().call(&[("read_file", json!({"path": "alpha.txt"}))]).hang());
    let mut worker = Worker::start(&home, hangs).await;
    let id = home.enqueue("look").await;
    let mut events = stream(home.store.clone(), id);
    let mut seen = Vec::new();
    while let Some(happened) = events.next().await {
        let event = happened.expect("can be read").event;
        if let Event::ToolEnd { result, .. } = &event {
            assert!(result.contains("ALPHA-7"), "{result}");
            posse_core::port::JobRepository::cancel(&*home.store, id, "enough".into(), 9).await.expect("is asked for");
        }
        seen.push(event);
    }
    worker.until_ended(id).await;
    assert!(matches!(&seen[0], Event::Message { text, .. } if text == "look"), "{seen:?}");
    let Some(Event::Done { status, reason, usage, .. }) = seen.last() else { panic!("no end: {seen:?}") };
    assert_eq!((status.as_str(), reason.as_deref(), usage.input), ("cancelled", Some("enough"), 10));
    assert_eq!(seen.iter().filter(|event| matches!(event, Event::Done { .. })).count(), 1);
    let missing = stream(home.store.clone(), posse_core::job::JobId(99)).collect::<Vec<_>>().await;
    assert!(matches!(missing[..], [Err(_)]), "one error, then nothing: {missing:?}");
}

#[tokio::test]
async fn what_a_replay_asks_is_what_was_asked() {
    let home = Home::new();
    let model = ScriptedModel::new().call(&[("read_file", json!({"path": "alpha.txt"}))]).say("ALPHA-7");
    let model = Arc::new(model);
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = home.enqueue("look").await;
    worker.until_ended(id).await;
    let mut run = posse_core::run::Run::default();
    let mut asked = Vec::new();
    for entry in home.entries(id).await {
        if matches!(entry, Entry::Turn(_)) {
            asked.push(serde_json::to_string(&run.request()).expect("JSON"));
        }
        run.apply(&entry);
    }
    let sent: Vec<_> = model.requests().iter().map(|r| serde_json::to_string(r).expect("JSON")).collect();
    assert_eq!(asked, sent);
    assert!(matches!(model.requests()[1].messages.last(), Some(Message::Tool { .. })));
}
