//! Case C03: conversations that outgrow their window, and journals that somebody has damaged.

use posse_core::clock::Clock;
use posse_core::job::{JobId, JobState};
use posse_core::model::{CallRequest, Message, ModelProfile, ModelReply, ModelRequest, ToolCalling};
use posse_core::port::{JobQueries, JobRepository};
use posse_core::run::journal::Entry;
use posse_infra::process::SystemClock;
use posse_testing::scripted::{Play, ScriptedModel, calls_reply, text_reply};
use serde_json::json;
use std::sync::Arc;

use super::kit::{Home, Worker, WorkerOptions};

/// A reply whose token counts teach nothing, as those of a provider that sends none.
fn uncounted(mut reply: ModelReply) -> Play {
    reply.usage.estimated = true;
    Play::Reply(reply)
}

/// Reads three files in each of 30 turns and then ends; sums up when asked to. The scripted model
/// judges every request, those for summaries included.
fn reader(turns: usize) -> ScriptedModel {
    let profile = ModelProfile {
        name: "small".into(),
        model: "small".into(),
        tool_calling: ToolCalling::Native,
        context_window: Some(4_000),
    };
    let mut turn = 0;
    let respond = move |request: &ModelRequest| {
        if request.tools.is_empty() {
            return uncounted(text_reply("The files were read."));
        }
        turn += 1;
        if turn > turns {
            return uncounted(text_reply("end"));
        }
        let call = |n: usize| CallRequest {
            id: "same".into(),
            name: "read_file".into(),
            arguments: json!({"path": format!("long{}.txt", (turn * 3 + n) % 90)}).to_string(),
            extra: None,
        };
        uncounted(calls_reply((0..3).map(call).collect()))
    };
    ScriptedModel::new().with_profile(profile).forever(respond)
}

/// A home with 90 files of about 300 tokens.
fn home() -> Home {
    let home = Home::new();
    for n in 0..90 {
        let text = format!("File {n}. {}", "The ship sails on to the next port. ".repeat(33));
        std::fs::write(home.workspace().join(format!("long{n}.txt")), text).expect("a file");
    }
    home
}

fn options(max_messages: Option<u32>, chunk: u32) -> WorkerOptions {
    let mut options = WorkerOptions::default();
    options.persona.limits.max_turns = 100;
    options.persona.context.max_messages = max_messages;
    options.persona.context.chunk = chunk;
    options
}

async fn compactions(home: &Home, id: JobId) -> usize {
    home.entries(id).await.iter().filter(|entry| matches!(entry, Entry::Compacted { .. })).count()
}

#[tokio::test]
async fn c03_no_cut_parts_a_call_from_its_result() {
    // Cuts by the window, and by numbers that meet every place of a batch of three.
    for (max_messages, chunk) in [(None, 10), (Some(5), 2), (Some(6), 3), (Some(7), 4), (Some(9), 5), (Some(12), 7)] {
        let home = home();
        let model = Arc::new(reader(30));
        let mut worker = Worker::start_with(&home, model.clone(), options(max_messages, chunk)).await;
        let id = home.enqueue("read all files").await;
        worker.until_ended(id).await;
        let job = home.job(id).await;
        assert_eq!((job.state, job.output.expect("an answer").text.as_str()), (JobState::Completed, "end"));
        model.assert_clean();
        let count = compactions(&home, id).await;
        assert!(count >= 2, "{count} compactions");
        let archived = home.store.archived(id).await.expect("readable");
        assert_eq!(archived.len(), count, "what left the conversation can be read");
        assert!(archived[0].1.contains("[call of read_file] {\"path\":\"long3.txt\"}\n"), "{}", archived[0].1);
        assert!(archived[0].1.contains("File 3. The ship sails on"), "whole: {}", archived[0].1);
    }
}

#[tokio::test]
async fn c03_whatever_number_of_turns_is_kept_every_request_can_be_sent() {
    for keep_last in 1..=12 {
        let home = home();
        let model = Arc::new(reader(30));
        let mut options = options(None, 10);
        options.persona.context.keep_last = keep_last;
        let mut worker = Worker::start_with(&home, model.clone(), options).await;
        let id = home.enqueue("read all files").await;
        worker.until_ended(id).await;
        let job = home.job(id).await;
        assert_eq!((job.state, job.output.expect("an answer").text.as_str()), (JobState::Completed, "end"));
        model.assert_clean();
        // Three turns fill the window: where more are to be kept whole, their results are shortened.
        let smaller = |entry: &&Entry| matches!(entry, Entry::Compacted { .. } | Entry::Shortened { .. });
        let count = home.entries(id).await.iter().filter(smaller).count();
        assert!(count >= 2, "keep_last {keep_last}: {count}");
    }
}

#[tokio::test]
async fn c03_a_journal_with_a_row_missing_is_gone_on_from() {
    for kind in ["call_ended", "call_started", "turn", "compacted"] {
        let home = home();
        let model = Arc::new(reader(12));
        let mut worker = Worker::start_with(&home, model.clone(), options(None, 10)).await;
        let id = home.enqueue("read all files").await;
        worker.until_ended(id).await;
        assert!(compactions(&home, id).await >= 1);
        worker.shut_down().await;

        let path = home.folder.path().join("posse.db");
        let gone = rusqlite::Connection::open(path)
            .expect("opens")
            .execute(
                "DELETE FROM steps WHERE job_id = ?1 AND seq = (SELECT seq FROM steps WHERE job_id = ?1 AND kind = ?2 \
                 ORDER BY seq LIMIT 1)",
                rusqlite::params![id.0, kind],
            )
            .expect("is deleted");
        assert_eq!(gone, 1, "{kind}");
        home.store.retry(id, SystemClock.now()).await.expect("runs again");
        let model = Arc::new(reader(12));
        let mut worker = Worker::start_with(&home, model.clone(), options(None, 10)).await;
        worker.until_ended(id).await;
        let job = home.job(id).await;
        assert_eq!(job.state, JobState::Completed, "{kind}: {:?}", job.reason);
        assert_eq!(job.output.expect("an answer").text, "end");
        model.assert_clean();
        let task =
            |m: &Message| matches!(m, Message::User { text } if text.ends_with("\n\nYour task:\nread all files"));
        assert!(model.requests()[0].messages.iter().any(task), "{kind}");
    }
}

#[tokio::test]
async fn a_summary_that_never_comes_takes_no_more_than_the_runs_time() {
    let home = home();
    let model = ScriptedModel::new().forever(|request| {
        if request.tools.is_empty() {
            return Play::Hang;
        }
        let (name, arguments) = ("list_files".to_owned(), "{}".to_owned());
        uncounted(calls_reply(vec![CallRequest { id: String::new(), name, arguments, extra: None }]))
    });
    let mut options = options(Some(4), 2);
    options.persona.limits.max_seconds = Some(1);
    options.persona.tools = vec!["list_files".into(), "annotations".into()];
    let model = Arc::new(model);
    let mut worker = Worker::start_with(&home, model.clone(), options).await;
    let id = home.enqueue("look").await;
    worker.until_ended(id).await;
    let job = home.job(id).await;
    assert!(job.reason.as_deref().is_some_and(|reason| reason.contains("1 s of work")), "{:?}", job.reason);
    assert_eq!(compactions(&home, id).await, 1, "what can be told without a model stands in its place");
}
