//! One moving line at the bottom of a terminal: what is going on right now.

use std::time::Instant;

use posse_core::events::JobEvent;
use posse_core::model::Delta;
use posse_core::run::journal::Entry;

use crate::output::Out;
use crate::output::text::{columns, duration, one_line, plural};

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

pub struct Status {
    out: Out,
    doing: Doing,
    since: Instant,
    drawn: bool,
    frame: usize,
}

enum Doing {
    Waiting(String),
    Thinking { pieces: u64, tail: String },
    Tools(Vec<(String, String)>),
    Nothing,
}

impl Status {
    pub fn new(out: &Out) -> Status {
        let doing = Doing::Waiting("waiting for a worker".into());
        Status { out: *out, doing, since: Instant::now(), drawn: false, frame: 0 }
    }

    pub fn waiting(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !matches!(&self.doing, Doing::Waiting(now) if *now == what) {
            self.become_(Doing::Waiting(what));
        }
    }

    pub fn happened(&mut self, event: &JobEvent) {
        let thinking = || Doing::Thinking { pieces: 0, tail: String::new() };
        match event {
            JobEvent::Claimed { .. } => self.become_(Doing::Waiting("starting".into())),
            JobEvent::Entry { recorded, .. } => match &recorded.entry {
                Entry::Began { .. }
                | Entry::Note { .. }
                | Entry::Doubted { .. }
                | Entry::SkillBegan { .. }
                | Entry::Answered { .. }
                | Entry::Replanned { .. }
                | Entry::Compacted { .. }
                | Entry::Shortened { .. }
                | Entry::Counted { .. }
                | Entry::Summarised { .. }
                | Entry::Reopened
                | Entry::Restarted => self.become_(thinking()),
                Entry::Asked { .. } => self.become_(Doing::Waiting("waiting for an answer".into())),
                Entry::Turn(turn) => {
                    let calls = turn.calls.iter().map(|c| (c.request.id.clone(), c.request.name.clone())).collect();
                    self.become_(Doing::Tools(calls));
                }
                Entry::CallEnded { call_id, .. } => {
                    if let Doing::Tools(open) = &mut self.doing {
                        open.retain(|(id, _)| id != call_id);
                        if open.is_empty() {
                            self.become_(thinking());
                        }
                    }
                }
                Entry::CallMade { call, .. } => {
                    if let Doing::Tools(open) = &mut self.doing {
                        open.push((call.request.id.clone(), call.request.name.clone()));
                    }
                }
                Entry::CallStarted { .. } | Entry::FellBack { .. } | Entry::ProgramBegan { .. } => {}
                Entry::TurnFailed { .. } | Entry::Ended { .. } => self.become_(Doing::Nothing),
            },
            JobEvent::AttemptEnded { .. } | JobEvent::Ended { .. } => self.become_(Doing::Nothing),
        }
    }

    pub fn asking(&mut self) {
        self.become_(Doing::Thinking { pieces: 0, tail: String::new() });
    }

    pub fn delta(&mut self, delta: &Delta) {
        match (delta, &mut self.doing) {
            (Delta::Text(text) | Delta::Reasoning(text), Doing::Thinking { pieces, tail }) => {
                *pieces += 1;
                tail.push_str(text);
                if tail.len() > 4096 {
                    let from = tail.len() - 1024;
                    let from = (from..tail.len()).find(|i| tail.is_char_boundary(*i)).unwrap_or(0);
                    tail.drain(..from);
                }
            }
            (Delta::Call { .. }, Doing::Thinking { pieces, .. }) => *pieces += 1,
            (Delta::Restarted(_), _) => self.become_(Doing::Waiting("asking the model again".into())),
            (Delta::Text(_) | Delta::Call { .. } | Delta::Reasoning(_), Doing::Waiting(_)) => self.asking(),
            _ => {}
        }
    }

    fn become_(&mut self, doing: Doing) {
        // What goes on keeps its clock: a model that is asked is the one that thinks.
        let same = matches!((&self.doing, &doing), (Doing::Thinking { pieces: 0, .. }, Doing::Thinking { .. }));
        if !same {
            self.since = Instant::now();
        }
        self.doing = doing;
    }

    pub fn draw(&mut self) {
        if !self.out.moving {
            return;
        }
        let elapsed = duration(self.since.elapsed().as_millis() as i64);
        let (what, tail) = match &self.doing {
            Doing::Waiting(what) => (format!("{what} · {elapsed}"), ""),
            Doing::Thinking { pieces: 0, .. } => (format!("thinking · {elapsed}"), ""),
            Doing::Thinking { pieces, tail } => {
                (format!("thinking · {elapsed} · ~{}", plural(*pieces, "token")), tail.as_str())
            }
            Doing::Tools(open) => {
                let names: Vec<_> = open.iter().map(|(_, name)| one_line(name, 40)).collect();
                (format!("running {} · {elapsed}", names.join(", ")), "")
            }
            Doing::Nothing => return self.clear(),
        };
        self.frame = (self.frame + 1) % FRAMES.len();
        // One column is kept free: a full line would wrap.
        let room = self.out.width.saturating_sub(columns(&what) + 9);
        let tail = if room > 12 { last_columns(tail, room) } else { String::new() };
        let line = format!(
            "  {}  {} {}",
            self.out.note_paint.cyan(FRAMES[self.frame]),
            one_line(&what, self.out.width.saturating_sub(6)),
            self.out.note_paint.dim(tail)
        );
        self.out.moving_line(&line);
        self.drawn = true;
    }

    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            self.out.moving_line("");
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The end of what was said, on one line. The JSON around a structured step is left out.
fn last_columns(text: &str, room: usize) -> String {
    let json =
        [("{\"thinking\": \"", ""), ("{\"thinking\":\"", ""), ("\", \"tool\": \"", " → "), ("\",\"tool\":\"", " → ")];
    let text = json.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let line = one_line(&text, 4096);
    let mut start = line.len();
    let mut used = 1;
    for (i, c) in line.char_indices().rev() {
        used += columns(c.encode_utf8(&mut [0; 4]));
        if used > room {
            break;
        }
        start = i;
    }
    if start == 0 { line } else { format!("…{}", &line[start..]) }
}
