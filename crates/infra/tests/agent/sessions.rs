//! Conversations: exchanges of a session, worked one after the other, by one process or several.

use std::sync::Arc;

use posse_core::job::{JobId, JobState, NewJob, Payload};
use posse_core::model::{Message, ModelErrorKind, ModelProfile, ModelRequest, ToolCalling};
use posse_core::port::{
    JobQueries as _, JobRepository as _, QuestionFilter, QuestionRepository as _, SessionQueries as _,
    SessionRepository as _,
};
use posse_core::run::journal::Entry;
use posse_core::session::{NewSession, Session};
use posse_testing::scripted::{Play, ScriptedModel, text_reply};
use serde_json::json;

use super::kit::{Home, ROLE, Worker, WorkerOptions};

async fn begin(home: &Home) -> Session {
    let new = NewSession { name: None, role: ROLE.into() };
    home.store.begin_session(new, 1).await.expect("begins").0
}

async fn say(home: &Home, session: &Session, goal: &str) -> JobId {
    let payload = Payload { goal: goal.into(), session: Some(session.id), ..Payload::default() };
    let job = NewJob { role: ROLE.into(), payload, ..NewJob::default() };
    home.store.enqueue(vec![job], 2).await.expect("is stored")[0].id
}

/// A message as text, to be compared by bytes.
fn bytes(request: &ModelRequest) -> String {
    request.messages.iter().map(|message| serde_json::to_string(message).expect("JSON") + "\n").collect()
}

/// Whether a request begins with all that one before it had, but for what each is told of the workspace with its task.
fn begins_with(next: &ModelRequest, before: &ModelRequest) -> bool {
    let last = before.messages.len() - 1;
    next.messages[..last] == before.messages[..last] && texts(next)[last] == texts(before)[last]
}

/// What was said, without what the run is told of its workspace.
fn texts(request: &ModelRequest) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::System { text } | Message::User { text } | Message::Tool { text, .. } => text.clone(),
        Message::Assistant { text, .. } => text.clone(),
    };
    let task = |text: String| match text.find("Your task:") {
        Some(at) if text.starts_with("The workspace has") => text[at..].to_owned(),
        _ => text,
    };
    request.messages.iter().map(text).map(task).collect()
}

#[tokio::test]
async fn a_conversation_survives_a_restart_and_holds_no_tool_logs() {
    let home = Home::new();
    let session = begin(&home).await;
    let answers = ["It says ALPHA.", "It was alpha.txt.", "Goodbye."];
    for (exchange, answer) in answers.iter().enumerate() {
        // A process of its own for every exchange.
        let model = Arc::new(ScriptedModel::new().call(&[("read_file", json!({"path": "alpha.txt"}))]).say(answer));
        let mut worker = Worker::start(&home, model.clone()).await;
        let id = say(&home, &session, &format!("question {exchange}")).await;
        worker.until_ended(id).await;
        assert_eq!(home.job(id).await.state, JobState::Completed);
        let first = &model.requests()[0];
        let said = texts(first);
        let mut wanted = Vec::new();
        for (before, answer) in answers.iter().enumerate().take(exchange) {
            wanted.extend([format!("Your task:\nquestion {before}"), (*answer).to_owned()]);
        }
        wanted.push(format!("Your task:\nquestion {exchange}"));
        assert_eq!(said[1..], wanted, "goals and answers, in order");
        assert!(!bytes(first).contains("ALPHA-7"), "what a tool gave stays in its run");
        worker.shut_down().await;
    }
}

#[tokio::test]
async fn the_prefix_of_a_session_stays_the_same_bytes() {
    for calling in [ToolCalling::Native, ToolCalling::Structured] {
        let home = Home::new();
        let session = begin(&home).await;
        let profile = ModelProfile {
            name: "scripted".into(),
            model: "m".into(),
            tool_calling: calling,
            context_window: Some(32_768),
        };
        let answer = move |_: &ModelRequest| {
            let step = json!({"thinking": "so", "tool": "finish", "arguments": {"final_summary": "an answer"}});
            let text = if calling == ToolCalling::Structured { step.to_string() } else { "an answer".into() };
            Play::Reply(text_reply(&text))
        };
        let model = Arc::new(ScriptedModel::new().with_profile(profile).forever(answer));
        let mut worker = Worker::start(&home, model.clone()).await;
        for exchange in 0..6 {
            let id = say(&home, &session, &format!("question {exchange}")).await;
            worker.until_ended(id).await;
            assert_eq!(home.job(id).await.output.expect("an answer").text, "an answer");
        }
        let requests = model.requests();
        assert_eq!(requests.len(), 6);
        for pair in requests.windows(2) {
            assert!(begins_with(&pair[1], &pair[0]), "{calling:?}: the next request begins with the one before");
        }
    }
}

#[tokio::test]
async fn what_was_asked_on_the_way_stands_in_what_is_told_later() {
    let home = Home::new();
    let session = begin(&home).await;
    let asking = json!({"final_summary": "", "clarifying_questions": ["Which ship?", "Which port?"]});
    let model = ScriptedModel::new().call(&[("finish", asking)]).say("The Aurora sails.").say("As I said.");
    let model = Arc::new(model.say("They talked.").say("It was the Aurora."));
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = say(&home, &session, "When does it sail?").await;
    worker.until(|progress| matches!(progress, posse_core::worker::Progress::Ended { .. })).await;
    for (question, answer) in home
        .store
        .questions(QuestionFilter { limit: 9, ..QuestionFilter::default() })
        .await
        .expect("asked")
        .iter()
        .zip(["Aurora", "Bergen"])
    {
        home.store.answer(question.id, answer.into(), "ada".into(), 3).await.expect("is saved");
    }
    worker.until_ended(id).await;
    let next = say(&home, &session, "Which was it?").await;
    worker.until_ended(next).await;
    let later = begin(&home).await;
    let last = say(&home, &later, "And which ship?").await;
    worker.until_ended(last).await;

    let requests = model.requests();
    let said = texts(&requests[2]);
    let answers = "Question: Which ship?\nAnswer: Aurora\n\nQuestion: Which port?\nAnswer: Bergen";
    let wanted = [
        "Your task:\nWhen does it sail?",
        "Which ship?\nWhich port?",
        answers,
        "The Aurora sails.",
        "Your task:\nWhich was it?",
    ];
    assert_eq!(said[1..], wanted);
    let record = bytes(&requests[3]);
    for words in ["Which ship?", "Aurora", "Which port?", "Bergen", "The Aurora sails."] {
        assert!(record.contains(words), "the next session's summary is made of it: {words}: {record}");
    }
    model.assert_clean();
    let exchanges = home.store.exchanges(session.id, None).await.expect("can be read");
    let listed = posse_core::session::without_model(&exchanges);
    assert!(listed.contains("The agent asked: Which port?\n  The person said: Bergen"), "{listed}");
}

#[tokio::test]
async fn a_new_session_remembers_the_one_before() {
    let home = Home::new();
    let (first, model) = (begin(&home).await, Arc::new(ScriptedModel::new().say("Hello Ada.")));
    let mut worker = Worker::start(&home, model).await;
    let id = say(&home, &first, "I am Ada").await;
    worker.until_ended(id).await;
    worker.shut_down().await;

    let second = begin(&home).await;
    let model = Arc::new(ScriptedModel::new().say("The person is Ada.").say("You are Ada.").say("Still Ada."));
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = say(&home, &second, "who am I?").await;
    worker.until_ended(id).await;
    let entries = home.entries(id).await;
    let kinds: Vec<_> = entries.iter().map(Entry::kind).collect();
    assert_eq!(kinds, ["summarised", "began", "turn", "ended"]);
    let output = home.job(id).await.output.expect("an answer");
    assert_eq!((output.text.as_str(), output.usage.input), ("You are Ada.", 20), "the summary's cost is the run's");
    let again = say(&home, &second, "and now?").await;
    worker.until_ended(again).await;

    let requests = model.requests();
    assert_eq!(requests.len(), 3, "the summary was written once");
    let summarising = bytes(&requests[0]);
    assert!(summarising.contains("I am Ada") && summarising.contains("Hello Ada."), "{summarising}");
    let memory = "# Memory\n## Previous Session Summary\nThe person is Ada.";
    assert!(requests[1..].iter().all(|request| texts(request)[1] == memory));
    assert!(begins_with(&requests[2], &requests[1]));
    model.assert_clean();
}

#[tokio::test]
async fn what_a_summary_has_cost_outlives_its_worker() {
    let home = Home::new();
    let first = begin(&home).await;
    let long = ["word"; 900].join(" ");
    let mut worker = Worker::start(&home, Arc::new(ScriptedModel::new().say(&long).say(&long).say(&long))).await;
    for exchange in 0..3 {
        let id = say(&home, &first, &format!("question {exchange}")).await;
        worker.until_ended(id).await;
    }
    worker.shut_down().await;

    let second = begin(&home).await;
    let profile = ModelProfile {
        name: "scripted".into(),
        model: "m".into(),
        tool_calling: ToolCalling::Native,
        context_window: Some(4_096),
    };
    let model = Arc::new(
        ScriptedModel::new()
            .with_profile(profile)
            .say("Notes of a part.")
            .hang()
            .forever(|_| Play::Reply(text_reply("So it was."))),
    );
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = say(&home, &second, "what was it?").await;
    for _ in 0..2 {
        worker.until(|progress| matches!(progress, posse_core::worker::Progress::AskingModel { .. })).await;
    }
    // It dies before the run begins, while the next part is summed up.
    worker.fleet.leave().await;
    drop(worker);
    let kinds: Vec<_> = home.entries(id).await.iter().map(Entry::kind).collect();
    assert_eq!(kinds, ["summarised"]);

    let options = WorkerOptions::default().after_the_lease();
    let mut next = Worker::start_with(&home, model.clone(), options).await;
    next.until_ended(id).await;
    let kinds: Vec<_> = home.entries(id).await.iter().map(Entry::kind).collect();
    let answered = kinds.iter().filter(|kind| ["summarised", "turn"].contains(kind)).count();
    assert_eq!((answered, kinds[answered - 1..].to_vec()), (model.asked() - 1, vec!["began", "turn", "ended"]));
    let output = home.job(id).await.output.expect("an answer");
    assert_eq!((output.text.as_str(), output.usage.input), ("So it was.", 10 * answered as u64), "every reply is paid");
}

#[tokio::test]
async fn without_a_summary_there_is_a_list() {
    let home = Home::new();
    let first = begin(&home).await;
    let mut worker = Worker::start(&home, Arc::new(ScriptedModel::new().say("Hello Ada."))).await;
    let id = say(&home, &first, "I am Ada").await;
    worker.until_ended(id).await;
    worker.shut_down().await;

    let second = begin(&home).await;
    let model = ScriptedModel::new().fail(ModelErrorKind::Transient, "busy").say("You are Ada.");
    let model = Arc::new(model.say("The person is Ada.").say("Still Ada."));
    let mut worker = Worker::start(&home, model.clone()).await;
    for goal in ["who am I?", "and now?"] {
        let id = say(&home, &second, goal).await;
        worker.until_ended(id).await;
        assert_eq!(home.job(id).await.state, JobState::Completed);
    }
    let requests = model.requests();
    let memory = |at: usize| texts(&requests[at])[1].clone();
    assert!(memory(1).contains("- The person said: I am Ada\n  The agent answered: Hello Ada."), "{}", memory(1));
    assert!(memory(3).ends_with("The person is Ada."), "the next exchange tried again: {}", memory(3));
    let kept = home.store.session_summary(second.previous.expect("remembers")).await.expect("can be read");
    assert_eq!(kept.as_deref(), Some("The person is Ada."));
}

#[tokio::test]
async fn a_long_conversation_keeps_its_newest_exchanges_and_a_summary_of_the_rest() {
    let home = Home::new();
    let session = begin(&home).await;
    let profile = ModelProfile {
        name: "scripted".into(),
        model: "m".into(),
        tool_calling: ToolCalling::Native,
        context_window: Some(8_192),
    };
    let answer = |request: &ModelRequest| {
        let sums_up =
            request.messages.iter().any(|m| matches!(m, Message::System { text } if text.contains("notes alone")));
        let many = ["word"; 150].join(" ");
        Play::Reply(text_reply(if sums_up { "They talked." } else { &many }))
    };
    let model = Arc::new(ScriptedModel::new().with_profile(profile).forever(answer));
    let mut worker = Worker::start(&home, model.clone()).await;
    for exchange in 0..30 {
        let id = say(&home, &session, &format!("question {exchange}")).await;
        worker.until_ended(id).await;
        assert_eq!(home.job(id).await.state, JobState::Completed);
    }
    let requests = model.requests();
    let summaries = requests.len() - 30;
    assert!((1..=6).contains(&summaries), "{summaries} summaries in 30 exchanges");
    let last = requests.last().expect("a request");
    assert_eq!(texts(last)[1], "# Memory\n## Earlier in This Session\nThey talked.");
    assert!(bytes(last).contains("question 28") && !bytes(last).contains("question 3\""));
    assert!(bytes(last).len() < 3 * 8_192, "{}", bytes(last).len());
    model.assert_clean();
}

#[tokio::test]
async fn an_interrupted_exchange_never_answers_later() {
    let home = Home::new();
    let session = begin(&home).await;
    let model = Arc::new(ScriptedModel::new().hang().say("Done."));
    let mut worker = Worker::start(&home, model.clone()).await;
    let id = say(&home, &session, "something long").await;
    worker.until(|progress| matches!(progress, posse_core::worker::Progress::AskingModel { .. })).await;
    home.store.cancel(id, "interrupted".into(), 2).await.expect("is asked for");
    worker.until_ended(id).await;
    assert_eq!(home.job(id).await.state, JobState::Cancelled);
    let next = say(&home, &session, "something else").await;
    worker.until_ended(next).await;
    let said = texts(&model.requests()[1]);
    assert_eq!(said[1..], ["Your task:\nsomething long", "(interrupted)", "Your task:\nsomething else"]);
    assert_eq!(home.job(id).await.state, JobState::Cancelled);
}
