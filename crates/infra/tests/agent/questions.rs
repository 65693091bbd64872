//! Case C07: questions that outlive the process that asked them.

use posse_core::clock::Clock;
use posse_core::job::JobState;
use posse_core::job::question::{Answered, QuestionState};
use posse_core::model::Message;
use posse_core::port::{AnnotationQueries, JobQueries, JobRepository, QuestionFilter, QuestionRepository};
use posse_infra::process::SystemClock;
use posse_testing::scripted::{Play, ScriptedModel, text_reply};
use serde_json::{Value, json};
use std::sync::Arc;

use super::kit::{Home, Worker, WorkerOptions};

fn ask(questions: &[&str]) -> (&'static str, Value) {
    ("finish", json!({"final_summary": "", "clarifying_questions": questions}))
}

/// Paints in the colour that it was told last.
fn painter() -> ScriptedModel {
    ScriptedModel::new().respond(|request| {
        let Some(Message::Tool { text, .. }) = request.messages.last() else { panic!("no answer was told") };
        let colour = text.rsplit("Answer: ").next().unwrap_or_default().to_owned();
        Play::Reply(text_reply(&format!("painted {colour}")))
    })
}

#[tokio::test]
async fn c07_a_question_is_answered_after_a_restart() {
    let mut home = Home::new();
    let model = Arc::new(ScriptedModel::new().call(&[ask(&["Blue or green?"])]));
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = home.enqueue("paint it").await;
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert_eq!((job.state, job.lease_until, job.attempt), (JobState::Suspended, None, 0));
    assert!(job.reason.as_deref().is_some_and(|reason| reason.contains("posse question list")), "{:?}", job.reason);
    worker.shut_down().await;
    model.assert_clean();

    // Nobody works; another process is there with nothing but the file.
    home.store = home.another_store();
    let filter = QuestionFilter { limit: 10, ..QuestionFilter::default() };
    let question = home.store.questions(filter).await.expect("readable").remove(0);
    assert_eq!((question.text.as_str(), question.job), ("Blue or green?", id));
    let remark = home.store.annotations(id).await.expect("readable").remove(0);
    assert_eq!(remark.tags, ["clarification_needed".to_owned(), format!("job:{id}")]);
    let answer = |text: &str| home.store.answer(question.id, text.into(), "kim".into(), SystemClock.now());
    let accepted = answer("blue").await.expect("works");
    assert_eq!(accepted, Some(Answered::Accepted { job: id, open: 0 }));
    assert_eq!(home.job(id).await.state, JobState::Available);
    let Some(Answered::Settled { question }) = answer("green").await.expect("works") else { panic!("taken twice") };
    assert_eq!(question.answer.as_deref(), Some("blue"));

    let model = Arc::new(painter());
    let mut worker = Worker::start(&home, model.clone()).await;
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert_eq!((job.state, job.output.expect("an answer").text.as_str()), (JobState::Completed, "painted blue"));
    assert_eq!(model.asked(), 1, "it goes on once");
    model.assert_clean();
}

#[tokio::test]
async fn c07_an_answer_that_the_journal_lost_is_told_again() {
    let home = Home::new();
    let model = Arc::new(ScriptedModel::new().call(&[ask(&["Blue or green?", "Gloss?"])]));
    let mut worker = Worker::start(&home, model).await;
    let id = home.enqueue("paint it").await;
    worker.until_ended(id).await;
    worker.shut_down().await;
    let filter = QuestionFilter { limit: 10, ..QuestionFilter::default() };
    for (question, answer) in home.store.questions(filter).await.expect("readable").into_iter().zip(["no", "blue"]) {
        home.store.answer(question.id, answer.into(), "kim".into(), SystemClock.now()).await.expect("works");
    }
    let gone = rusqlite::Connection::open(home.folder.path().join("posse.db"))
        .expect("opens")
        .execute("DELETE FROM steps WHERE kind = 'answered' AND data LIKE '%blue%'", [])
        .expect("is deleted");
    assert_eq!(gone, 1);

    let model = Arc::new(painter());
    let mut worker = Worker::start(&home, model.clone()).await;
    // It waits for what was answered, is told again, and goes on.
    worker.until_ended(id).await;
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert_eq!((job.state, job.output.expect("an answer").text.as_str()), (JobState::Completed, "painted blue"));
    assert_eq!(model.asked(), 1, "nobody and nothing is asked in between");
}

#[tokio::test]
async fn c07_answers_from_two_processes_race_to_one() {
    let home = Home::new();
    let model = Arc::new(ScriptedModel::new().call(&[ask(&["Blue or green?"])]));
    let mut worker = Worker::start(&home, model).await;
    let id = home.enqueue("paint it").await;
    worker.until_ended(id).await;
    worker.shut_down().await;
    let stores = [home.store.clone(), home.another_store()];
    let filter = QuestionFilter { limit: 10, ..QuestionFilter::default() };
    let question = home.store.questions(filter).await.expect("readable").remove(0).id;
    let start = Arc::new(tokio::sync::Barrier::new(2));
    let racers: Vec<_> = stores
        .into_iter()
        .zip(["blue", "green"])
        .map(|(store, colour)| {
            let start = Arc::clone(&start);
            tokio::spawn(async move {
                start.wait().await;
                store.answer(question, colour.into(), colour.into(), SystemClock.now()).await.expect("works")
            })
        })
        .collect();
    let mut accepted = 0;
    for racer in racers {
        accepted += usize::from(matches!(racer.await.expect("ends"), Some(Answered::Accepted { .. })));
    }
    assert_eq!(accepted, 1);
    let settled = home.store.question(question).await.expect("readable").expect("it is there");
    let model = Arc::new(painter());
    let mut worker = Worker::start(&home, model).await;
    worker.until_ended(id).await;
    let output = home.job(id).await.output.expect("an answer");
    assert_eq!(output.text, format!("painted {}", settled.answer.expect("an answer")));
}

#[tokio::test]
async fn c07_a_cancelled_job_asks_no_more_and_a_retried_one_asks_again() {
    let home = Home::new();
    let model = Arc::new(ScriptedModel::new().call(&[ask(&["Blue or green?"])]));
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = home.enqueue("paint it").await;
    worker.until_ended(id).await;
    home.store.cancel(id, "enough".into(), SystemClock.now()).await.expect("cancelled");
    let open = || home.store.questions(QuestionFilter { limit: 10, ..QuestionFilter::default() });
    assert!(open().await.expect("readable").is_empty());

    home.store.retry(id, SystemClock.now()).await.expect("runs again");
    worker.until_ended(id).await;
    assert_eq!(home.job(id).await.state, JobState::Suspended);
    let question = open().await.expect("readable").remove(0);
    assert_eq!((question.text.as_str(), question.state), ("Blue or green?", QuestionState::Open));
    assert_eq!(model.asked(), 1, "the model is not asked before people have answered");
    model.assert_clean();
}

#[tokio::test]
async fn c07_a_job_goes_on_without_an_answer_when_its_time_is_over() {
    let home = Home::new();
    let model = Arc::new(ScriptedModel::new().call(&[ask(&["Blue or green?"])]).respond(|request| {
        let told = request.messages.last();
        let nobody = matches!(told, Some(Message::Tool { text, .. }) if text.contains("nobody answered in time"));
        Play::Reply(text_reply(if nobody { "painted grey" } else { "painted nothing" }))
    }));
    let mut options = WorkerOptions::default();
    options.persona.limits.max_wait_seconds = Some(0);
    let mut worker = Worker::start_with(&home, model.clone(), options).await;
    let id = home.enqueue("paint it").await;
    worker.until_ended(id).await;
    worker.until_ended(id).await;
    assert_eq!(home.job(id).await.output.expect("an answer").text, "painted grey");
    let filter = QuestionFilter { settled: true, job: Some(id), limit: 10 };
    let question = home.store.questions(filter).await.expect("readable").remove(0);
    assert_eq!((question.state, question.answer), (QuestionState::Expired, None));
    model.assert_clean();
}
