//! `posse question`: what agents ask, and what they are told.

use posse_app::Code;
use posse_core::clock::Millis;
use posse_core::job::JobId;
use posse_core::job::question::{
    Answered, MAX_ANSWER_BYTES, Question, QuestionId, QuestionState, check_answer, check_name,
};
use posse_core::port::QuestionFilter;

use super::enqueue::read_words;
use super::lists::{FullArgs, SkipArgs};
use super::prelude::*;
use crate::output::table::{Cell, painted, plain};
use crate::output::text::{ago, moment, one_line, visible, wrap};
use crate::settings::Settings;

#[derive(Subcommand)]
pub enum QuestionCommand {
    /// Questions that wait for an answer, oldest first
    List(ListArgs),
    /// One question, with the job that asks it
    Show {
        /// The question's number
        id: i64,
    },
    /// Answer a question; its job goes on, whether a worker is there or not
    Answer(AnswerArgs),
}

#[derive(Args)]
pub struct ListArgs {
    /// Settled ones too
    #[arg(long)]
    all: bool,
    /// Only of this job
    #[arg(long, value_name = "ID")]
    job: Option<i64>,
    #[command(flatten)]
    full: FullArgs,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    skip: SkipArgs,
}

#[derive(Args)]
pub struct AnswerArgs {
    /// The question's number
    id: i64,
    /// Who answers; kept with the answer
    #[arg(long, default_value = "person", value_name = "NAME")]
    by: String,
    /// The answer; `-` reads it from standard input
    #[arg(required = true)]
    text: Vec<String>,
}

pub async fn dispatch(cx: &Context, command: QuestionCommand) -> Result<Exit> {
    match command {
        QuestionCommand::List(args) => list(cx, args).await,
        QuestionCommand::Show { id } => show(cx, id).await,
        QuestionCommand::Answer(args) => answer(cx, args).await,
    }
}

async fn list(cx: &Context, args: ListArgs) -> Result<Exit> {
    let filter = QuestionFilter { settled: args.all, job: args.job.map(JobId), limit: args.skip.most(args.limit) };
    let mut questions = cx.read(async |store| store.questions(filter).await).await?;
    let next = args.skip.cut(args.limit, &mut questions);
    let now = wire::now();
    let open = questions.iter().any(|question| question.state == QuestionState::Open);
    let titles = ["id", "job", "role", "state", "asked", "question"];
    let row = |question: &Question| row(cx, question, now);
    cx.out.page(("questions", args.full.full), &questions, next, "nobody asks anything", &titles, row)?;
    if open && !cx.out.json {
        cx.out.hint("posse question answer ID \"<answer>\"");
    }
    Ok(Exit::Ok)
}

fn row(cx: &Context, question: &Question, now: Millis) -> Vec<Cell> {
    let paint = cx.out.paint;
    let (state, open) = (question.state.as_str(), question.state == QuestionState::Open);
    vec![
        plain(question.id.to_string()),
        plain(question.job.to_string()),
        plain(asker(question)),
        painted(state, move |t| if open { paint.yellow(t) } else { paint.dim(t) }),
        plain(ago(question.created_at, now)),
        plain(one_line(&question.text, 200)),
    ]
}

/// Who asks, and for which job that is done at the top.
fn asker(question: &Question) -> String {
    let role = one_line(&question.role, 24);
    match question.path.first() {
        Some(root) => format!("{role}, for job {}", root.job),
        None => role,
    }
}

async fn show(cx: &Context, id: i64) -> Result<Exit> {
    let settings = cx.plain_settings()?;
    let question = find(&settings, id).await?;
    if cx.out.json {
        return cx.out.document(&question);
    }
    let paint = cx.out.paint;
    let Question { id, job, role, state, .. } = &question;
    cx.out.line(format!(
        "{}  {} of job {job} asks  {}",
        paint.bold(format!("question {id}")),
        paint.cyan(visible(role)),
        state.as_str()
    ))?;
    if !question.path.is_empty() {
        let path = question.path.iter().map(|above| format!("job {} ({})", above.job, visible(&above.role)));
        let path = path.chain([format!("job {job} ({})", visible(role))]).collect::<Vec<_>>().join(" > ");
        cx.out.line(paint.dim(format!("  {path}")))?;
    }
    for line in wrap(&visible(&question.text), cx.out.width.saturating_sub(2)) {
        cx.out.line(format!("  {line}"))?;
    }
    let now = wire::now();
    cx.out.line(paint.dim(format!("  asked {} ({})", moment(question.created_at), ago(question.created_at, now))))?;
    match (&question.answer, question.settled_at, question.expires_at) {
        (Some(answer), Some(at), _) => {
            let by = question.settled_by.as_deref().unwrap_or("person");
            cx.out.line(format!("  answered by {}, {}: {}", visible(by), ago(at, now), visible(answer)))?;
        }
        (None, Some(at), _) => cx.out.line(format!("  {} {}", state.as_str(), ago(at, now)))?,
        (_, None, Some(at)) => cx.out.line(format!("  can be answered until {} ({})", moment(at), ago(at, now)))?,
        (_, None, None) => {}
    }
    Ok(Exit::Ok)
}

async fn answer(cx: &Context, args: AnswerArgs) -> Result<Exit> {
    let text = read_words("answer", args.text, MAX_ANSWER_BYTES)?;
    check_answer(&text).map_err(|why| usage(format!("the answer {why}")))?;
    check_name(&args.by).map_err(|why| usage(format!("--by {why}")))?;
    let settings = cx.plain_settings()?;
    find(&settings, args.id).await?;
    let store = wire::open_store(&settings)?;
    let answered = store.answer(QuestionId(args.id), text, args.by, wire::now()).await?;
    let answered = answered.ok_or_else(|| no_such(args.id, &settings))?;
    match &answered {
        Answered::Accepted { job, open } => {
            let line = match open {
                0 => format!("job {job} goes on (posse job watch {job} follows it)"),
                open => format!("saved; job {job} waits for {open} more (posse question list --job {job})"),
            };
            cx.out.say(&answered, line)
        }
        Answered::Settled { .. } if cx.out.json => cx.out.document(&answered).map(|_| Exit::Conflict),
        Answered::Settled { question } => Err(fail(Code::QuestionSettled, settled(question))),
    }
}

fn settled(question: &Question) -> String {
    let id = question.id;
    match (question.state, &question.answer) {
        (QuestionState::Expired, _) => {
            format!("question {id} was open for too long; its job went on without an answer")
        }
        (QuestionState::Closed, _) => format!("question {id} is closed: job {} was cancelled", question.job),
        (_, Some(answer)) => format!("question {id} is already answered: {}", one_line(answer, 200)),
        (_, None) => format!("question {id} is {}", question.state.as_str()),
    }
}

async fn find(settings: &Settings, id: i64) -> Result<Question> {
    let queries = wire::open_reader(settings)?.ok_or_else(|| no_such(id, settings))?;
    queries.question(QuestionId(id)).await?.ok_or_else(|| no_such(id, settings))
}

fn no_such(id: i64, settings: &Settings) -> anyhow::Error {
    fail(
        Code::QuestionNotFound,
        format!(
            "there is no question {id} in {}; posse question list shows those there are",
            settings.database.display()
        ),
    )
}
