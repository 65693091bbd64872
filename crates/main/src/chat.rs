//! A conversation: what a person types becomes jobs of a session, worked in this process, and what
//! the agent says is written out as it comes.
//!
//! What the agent answers goes to standard output, everything else to standard error; see [`Voice`]
//! for what else it says.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use posse_app::sessions::Talk;
use posse_app::{Code, Kind};
use posse_core::events::run::{Event, Happened, RunFollower, Speaker, ToolOutcome};
use posse_core::job::question::Question;
use posse_core::job::{JobId, JobState};
use posse_core::model::Delta;
use posse_core::port::JobQueries;
use posse_core::worker::Progress;
use tokio::sync::broadcast;

mod editor;
mod lines;
mod pane;
mod voice;

use crate::exit::Exit;
use crate::fleet::hear;
use crate::models::{self, Catalog};
use crate::output::Out;
use crate::output::stream::stderr;
use crate::output::text::{because, one_line, visible, wrap};
use crate::process::{Heard, Signals};
use crate::session_files::EventLog;
use crate::wire::now;
use editor::Editor;
use lines::{Line, Lines};
use pane::Pane;
use voice::Voice;

pub struct Conversation {
    pub talk: Talk,
    pub models: Arc<Catalog>,
    /// Where sessions keep their events; nowhere where what is said is sealed.
    pub folder: Option<PathBuf>,
}

pub struct Chat {
    out: Out,
    with: Conversation,
    input: Input,
    heard: Option<broadcast::Receiver<Progress>>,
    /// Said and not followed yet, oldest first.
    said: VecDeque<JobId>,
    over: bool,
}

enum Input {
    /// A pipe, a file, or a terminal that edits its lines itself: what was said is worked before more is read.
    Lines(Lines),
    /// A line that is always there to be edited, and what is said above it.
    Edited(Editor, Pane),
}

impl Input {
    /// The next message. May be given up and asked for again.
    async fn next(&mut self) -> Result<Line> {
        match self {
            Input::Lines(lines) => lines.next().await,
            Input::Edited(editor, _) => editor.next().await,
        }
    }

    fn prompt(&self, text: &str) {
        match self {
            Input::Lines(lines) => lines.prompt(text),
            // It is there already.
            Input::Edited(..) => {}
        }
    }

    fn pane(&self) -> Option<&Pane> {
        match self {
            Input::Lines(_) => None,
            Input::Edited(_, pane) => Some(pane),
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Input::Edited(_, pane) = self {
            pane.no_sign();
            stderr().above(None);
        }
    }
}

const SIGN_EVERY: Duration = Duration::from_millis(500);

/// Sessions whose words the history of the line has, and most of their exchanges.
const HISTORY_OF: (u32, usize) = (5, 500);

enum Followed {
    Ended(JobState),
    /// The chat is over; the job is as it was last saved.
    Left(Exit),
}

impl Chat {
    pub async fn new(out: Out, with: Conversation, heard: Option<broadcast::Receiver<Progress>>) -> Result<Chat> {
        let edits = out.moving && std::io::stdin().is_terminal();
        let edited = if edits { Editor::begin(with.talk.history(HISTORY_OF.0, HISTORY_OF.1).await?) } else { None };
        let input = match edited {
            Some((editor, pane)) => {
                let above = pane.clone();
                stderr().above(Some(Arc::new(move |text: &str| above.lines(text))));
                Input::Edited(editor, pane)
            }
            None => Input::Lines(Lines::read(out)),
        };
        Ok(Chat { out, with, input, heard, said: VecDeque::new(), over: false })
    }

    /// Talks until the end of input. Fails where the last thing said got no answer.
    pub async fn talk(mut self, signals: &mut Signals) -> Result<Exit> {
        let queries: Arc<dyn JobQueries> = self.with.talk.store.clone();
        let mut log = match &self.with.folder {
            Some(folder) => Some(EventLog::open(&queries, folder, &self.with.talk.session).await),
            None => None,
        };
        if let Some(Err(error)) = &log {
            self.out.warn(format!("the session's events are not written to a file: {error:#}"));
        }
        let mut exit = Exit::Ok;
        self.said = self.unfinished().await?.into();
        loop {
            let job = match self.said.pop_front() {
                Some(job) => job,
                None if self.over => return Ok(exit),
                None => match self.next_message(signals).await? {
                    Some(job) => job,
                    None => return Ok(exit),
                },
            };
            let followed = self.follow(job, log.as_mut().and_then(|log| log.as_mut().ok()), signals).await?;
            self.input.pane().into_iter().for_each(Pane::no_sign);
            match followed {
                Followed::Ended(JobState::Completed) => exit = Exit::Ok,
                Followed::Ended(_) => exit = Exit::Failed,
                Followed::Left(exit) => return Ok(exit),
            }
        }
    }

    /// Jobs of the session that were said and not answered when the last chat ended.
    async fn unfinished(&self) -> Result<Vec<JobId>> {
        let open = self.with.talk.unfinished(now()).await?;
        for exchange in &open {
            let said = one_line(&exchange.goal, 80);
            self.remark(format!("going on with what was said last: {said} (Ctrl-C drops it)"));
        }
        Ok(open.into_iter().map(|exchange| exchange.job).collect())
    }

    /// The next thing said, as a job; nothing when there is nothing more to say.
    async fn next_message(&mut self, signals: &mut Signals) -> Result<Option<JobId>> {
        loop {
            self.input.prompt("> ");
            let text = tokio::select! {
                line = self.input.next() => match line? {
                    Line::Text(text) => text,
                    Line::End | Line::Interrupt => return Ok(None),
                },
                _ = signals.heard() => return Ok(None),
            };
            if let Some(job) = self.say(text).await? {
                return Ok(Some(job));
            }
        }
    }

    /// Makes a job of what was said, which supersedes what is at work; nothing where it cannot be one.
    async fn say(&self, text: String) -> Result<Option<JobId>> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        match self.with.talk.say(text, now()).await {
            Ok(job) => Ok(Some(job)),
            Err(refused) if refused.code == Code::FieldInvalid => {
                self.out.warn(refused.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn follow(&mut self, job: JobId, mut log: Option<&mut EventLog>, signals: &mut Signals) -> Result<Followed> {
        let mut follower = RunFollower::new(self.with.talk.store.clone(), job);
        let mut voice = Voice::new(std::io::stdout().is_terminal());
        let mut asking: Option<Question> = None;
        let mut look = true;
        let edits = self.input.pane().is_some();
        let mut sign = tokio::time::interval(SIGN_EVERY);
        let (mut since, mut asked, mut begins) = (Instant::now(), false, false);
        loop {
            let news = if look { follower.poll().await? } else { Vec::new() };
            look = true;
            for happened in news {
                if let Some(Err(error)) = log.as_mut().map(|log| log.write(&happened)) {
                    // The next chat makes the file whole again.
                    self.out.warn(format!("the session's events are no longer written to a file: {error:#}"));
                    log = None;
                }
                if matches!(happened.event, Event::Answer { .. }) {
                    asking = None;
                }
                (since, asked) = (Instant::now(), false);
                self.show(&mut voice, &happened)?;
            }
            if std::mem::take(&mut begins) {
                (since, asked) = (Instant::now(), true);
                voice.begin(follower.calling_for_person());
            }
            if let Some(state) = follower.state().filter(|state| state.is_final()) {
                return Ok(Followed::Ended(state));
            }
            if matches!(follower.state(), Some(JobState::Scheduled | JobState::Retryable))
                && let Some(waiting) = self.with.talk.store.job(job).await?
                && models::is_helpless(&self.with.models, &waiting)
            {
                self.set_aside(&mut voice)?;
                self.out.warn(models::waits_for_a_person(&waiting));
                // Who is there may mend it, or say something else; a pipe has nobody.
                return Ok(if edits { Followed::Ended(waiting.state) } else { Followed::Left(Exit::Failed) });
            }
            if asking.is_none() && follower.state() == Some(JobState::Suspended) {
                asking = self.with.talk.next_question(job).await?;
                if let Some(question) = &asking {
                    self.set_aside(&mut voice)?;
                    self.ask(question);
                }
            }
            tokio::select! {
                () = follower.changed() => {}
                heard = hear(&mut self.heard) => match heard {
                    // For whom it is asked, the journal tells.
                    Some(Progress::AskingModel { job: of }) if of == job => begins = true,
                    Some(Progress::Delta { job: of, delta }) if of == job => {
                        look = false;
                        self.hear(delta, &mut voice)?;
                    }
                    // An entry, or a gap: the journal tells.
                    _ => {}
                },
                line = self.input.next(), if asking.is_some() || (edits && !self.over) => match (line?, &asking) {
                    (Line::Text(text), Some(question)) => {
                        if self.answer(question, text).await? {
                            asking = None;
                        }
                    }
                    (Line::Text(text), None) => self.said.extend(self.say(text).await?),
                    (Line::Interrupt, _) => {
                        if self.interrupt(job, &mut voice).await? {
                            return Ok(Followed::Left(Exit::Interrupted));
                        }
                    }
                    (Line::End, None) => self.over = true,
                    (Line::End, Some(Question { id, .. })) => {
                        self.remark(format!("question {id} stays open: posse question answer {id} \"<answer>\""));
                        return Ok(Followed::Left(Exit::Failed));
                    }
                },
                _ = sign.tick(), if edits => {
                    let is_waited_for = asking.is_some() || follower.state() == Some(JobState::Suspended);
                    if let Some(pane) = self.input.pane().filter(|_| !is_waited_for) {
                        let doing = if asked { "thinking" } else { "at work" };
                        let text = format!("  · {doing}, {} s", since.elapsed().as_secs());
                        pane.sign(&self.out.note_paint.dim(text));
                    }
                }
                signal = signals.heard() => match signal {
                    Heard::Interrupt => {
                        if self.interrupt(job, &mut voice).await? {
                            return Ok(Followed::Left(Exit::Interrupted));
                        }
                    }
                    Heard::Terminate => return Ok(Followed::Left(Exit::Interrupted)),
                },
            }
        }
    }

    /// Has the job end; true if that was asked for already, so that the person wants to leave.
    async fn interrupt(&self, job: JobId, voice: &mut Voice) -> Result<bool> {
        if self.with.talk.interrupt(job, now()).await? {
            return Ok(true);
        }
        self.set_aside(voice)?;
        Ok(false)
    }

    fn hear(&self, delta: Delta, voice: &mut Voice) -> Result<()> {
        match &delta {
            Delta::Text(_) | Delta::Call { .. } if !self.out.json => self.print(&voice.say(&delta))?,
            Delta::Text(_) | Delta::Call { .. } | Delta::Reasoning(_) => {}
            Delta::Restarted(failed) => {
                self.print(&voice.restart(&delta))?;
                self.remark(format!("  ! starting over: {}", one_line(&failed.reason, 200)));
            }
        }
        Ok(())
    }

    fn show(&self, voice: &mut Voice, happened: &Happened) -> Result<()> {
        if self.out.json {
            return self.out.json_line(happened);
        }
        match &happened.event {
            Event::Message { role: Speaker::Agent, text, .. } => {
                self.set_aside(voice)?;
                voice.hold(text);
            }
            Event::ToolStart { name, args, is_skill, depth, .. } => {
                self.set_aside(voice)?;
                let mark = if *is_skill { "▾" } else { "→" };
                let indent = "  ".repeat(*depth);
                self.remark(format!("  {indent}{mark} {} {}", visible(name), one_line(&args.to_string(), 100)));
            }
            Event::ToolEnd { name, outcome, result, depth, .. } if *outcome != ToolOutcome::Done => {
                let indent = "  ".repeat(*depth);
                self.remark(format!("  {indent}✗ {}: {}", visible(name), one_line(result, 160)));
            }
            Event::Note { text } | Event::Error { text } => {
                self.set_aside(voice)?;
                self.remark(format!("  ! {}", one_line(text, 300)));
            }
            Event::Done { status, text, reason, .. } => {
                let answer = voice.answer(text);
                self.set_aside(voice)?;
                self.print(&answer)?;
                if status != "completed" {
                    let reason = visible(reason.as_deref().unwrap_or_default());
                    self.remark(format!("({})", because(&status.replace('_', " "), &reason)));
                }
            }
            Event::Compacted { .. } => {}
            Event::Message { .. } | Event::ToolEnd { .. } | Event::Question { .. } | Event::Answer { .. } => {}
        }
        Ok(())
    }

    /// What was said up to here was no answer.
    fn set_aside(&self, voice: &mut Voice) -> Result<()> {
        self.print(&voice.end_line())?;
        voice.aside().into_iter().for_each(|text| self.remark(text));
        Ok(())
    }

    fn ask(&self, question: &Question) {
        if !self.out.json {
            self.out.note(self.out.note_paint.yellow(format!("? {}", visible(&question.text))));
        }
        self.input.prompt("? ");
    }

    /// Saves an answer; false if it cannot be one.
    async fn answer(&self, question: &Question, text: String) -> Result<bool> {
        match self.with.talk.answer(question, text, now()).await {
            Ok(true) => {}
            Ok(false) => self.remark("it was settled elsewhere in the meantime".into()),
            Err(error) if error.kind() == Kind::Invalid => {
                self.out.warn(error.to_string());
                self.ask(question);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn print(&self, text: &str) -> Result<()> {
        match self.input.pane() {
            Some(pane) => pane.words(text),
            None => self.out.raw(text)?,
        }
        Ok(())
    }

    fn remark(&self, text: String) {
        let rows = match self.input.pane() {
            Some(_) => wrap(&text, self.out.width.saturating_sub(1)),
            None => vec![text],
        };
        let rows: Vec<_> = rows.iter().map(|row| self.out.note_paint.dim(row)).collect();
        self.out.note(rows.join("\n"));
    }
}
