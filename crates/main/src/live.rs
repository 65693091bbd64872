//! The live view of one job: read from the journal, so that it is the same in every process, with
//! what this process hears beside it while the model thinks.

use std::time::Duration;

use anyhow::Result;
use posse_core::events::{Follower, JobEvent};
use posse_core::job::{Job, JobState};
use posse_core::worker::Progress;
use tokio::sync::broadcast;

pub mod feed;
pub mod render;
pub mod status;

pub use render::Renderer;
pub use status::Status;

use crate::fleet::hear;
use crate::output::text::moment;
use crate::output::{Out, Unwritten};

const EVERY: Duration = Duration::from_millis(150);

/// What a process that works itself knows beside the journal.
pub struct AtWork {
    pub worker: String,
    pub heard: Option<broadcast::Receiver<Progress>>,
    /// Whether a job whose attempt has ended waits for something that a person has to mend.
    pub is_helpless: Box<dyn Fn(&Job) -> bool + Send>,
}

/// Follows a job to its end and shows it, whoever works it. Where this process works too and another one
/// has the job, that is said.
///
/// Where this process works the job, it goes on to its end even if standard output takes nothing any more;
/// that is said, and given back beside the job. A job that waits for what a person has to mend is given back
/// as it is.
pub async fn follow(
    out: Out,
    mut follower: Follower,
    mut renderer: Renderer,
    at_work: Option<AtWork>,
) -> Result<(Job, Option<Unwritten>)> {
    let (ours, mut progress, is_helpless) = match at_work {
        Some(AtWork { worker, heard, is_helpless }) => (Some(worker), heard, Some(is_helpless)),
        None => (None, None, None),
    };
    let mut status = Status::new(&out);
    let mut unwritten = None;
    let mut tick = tokio::time::interval(EVERY);
    let mut headed = false;
    loop {
        let events = follower.poll().await?;
        let Some(job) = follower.job().cloned() else { continue };
        if !headed && !out.json {
            headed = true;
            status.clear();
            let heading = renderer.heading(&job).iter().try_for_each(|line| out.line(line));
            still_heard(&out, &job, heading, ours.is_some(), &mut unwritten)?;
        }
        for event in &events {
            status.happened(event);
            if let (Some(ours), JobEvent::Claimed { worker, .. }) = (&ours, event)
                && worker != ours
            {
                status.clear();
                out.note(format!("job {} is worked by {worker}, which was there first, by its own settings", job.id));
            }
            if unwritten.is_none() {
                let shown = show(&out, &mut status, &mut renderer, event);
                still_heard(&out, &job, shown, ours.is_some(), &mut unwritten)?;
            }
            if matches!(event, JobEvent::Ended { .. }) {
                return Ok((job, unwritten));
            }
        }
        let is_over = |event: &JobEvent| matches!(event, JobEvent::AttemptEnded { .. });
        if events.last().is_some_and(is_over) && is_helpless.as_ref().is_some_and(|is| is(&job)) {
            return Ok((job, unwritten));
        }
        say_what_is_waited_for(&mut status, &job, progress.is_some());
        // Until there may be something new: an entry heard of, or the next look.
        loop {
            tokio::select! {
                _ = tick.tick() => break,
                heard = hear(&mut progress) => match heard {
                    Some(Progress::Delta { job: of, delta }) if of == job.id => status.delta(&delta),
                    Some(Progress::AskingModel { job: of }) if of == job.id => status.asking(),
                    Some(Progress::Delta { .. } | Progress::AskingModel { .. }) => {}
                    _ => break,
                },
            }
        }
        status.draw();
    }
}

/// Whether what was to be shown could be: else that is said and kept, where the work goes on all the same.
fn still_heard(
    out: &Out,
    job: &Job,
    shown: Result<()>,
    goes_on: bool,
    unwritten: &mut Option<Unwritten>,
) -> Result<()> {
    let Err(error) = shown else { return Ok(()) };
    let failed: Unwritten = error.downcast()?;
    if !goes_on {
        return Err(failed.into());
    }
    out.note(format!("{failed}; job {0} goes on to its end unseen, and posse show {0} shows it", job.id));
    *unwritten = Some(failed);
    Ok(())
}

fn show(out: &Out, status: &mut Status, renderer: &mut Renderer, event: &JobEvent) -> Result<()> {
    if out.json {
        return out.json_line(event);
    }
    let lines = renderer.lines(event);
    if !lines.is_empty() {
        status.clear();
        lines.iter().try_for_each(|line| out.line(line))?;
    }
    Ok(())
}

fn say_what_is_waited_for(status: &mut Status, job: &Job, working: bool) {
    match job.state {
        JobState::Available if working => status.waiting("starting"),
        JobState::Available => status.waiting("waiting for a worker (posse work)"),
        JobState::Scheduled => status.waiting(format!("due {}", moment(job.run_at))),
        JobState::Retryable => status.waiting(format!("next attempt {}", moment(job.run_at))),
        JobState::Suspended => status.waiting(job.reason.as_deref().unwrap_or("waiting for a person")),
        _ if job.cancel_requested => status.waiting("cancelling"),
        _ => {}
    }
}
