//! Schedules: kept as they were added, and each run made once, whoever comes first.

use std::sync::Arc;

use super::*;
use posse_core::port::Firing;
use posse_core::schedule::{LastJob, Missed, Overlap, Schedule};

fn hourly(name: &str) -> Schedule {
    let job = NewJob { priority: 2, max_attempts: 9, ..job("r") };
    let rules = (Missed::All, Overlap::Skip);
    Schedule::new(name, ("0 * * * *", "Europe/Oslo"), job, rules, T0).expect("a schedule")
}

/// What a process does that found `schedule` due at `now`.
async fn fire(store: &dyn Store, schedule: &Schedule, now: Millis) -> Option<Vec<JobId>> {
    let due = schedule.fall_due(now).expect("a rule");
    let jobs = due.runs.iter().map(|run| (*run, schedule.job.clone())).collect();
    let firing = Firing { schedule: schedule.name.clone(), expected: schedule.next_at, next_at: due.next_at, jobs };
    store.fire(firing, now).await.expect("works")
}

pub async fn a_schedule_is_kept_as_it_was_added(store: Arc<dyn Store>) {
    let (news, weather) = (hourly("news"), hourly("weather"));
    assert!(store.add_schedule(weather.clone()).await.expect("works"));
    assert!(store.add_schedule(news.clone()).await.expect("works"));
    let other = Schedule { cron: "5 * * * *".into(), ..news.clone() };
    assert!(!store.add_schedule(other).await.expect("works"), "there is one of that name");
    assert_eq!(store.schedules().await.expect("can be read"), [news.clone(), weather.clone()]);
    assert!(store.remove_schedule("news".into()).await.expect("works"));
    assert!(!store.remove_schedule("news".into()).await.expect("works"));
    assert_eq!(store.schedules().await.expect("can be read"), [weather]);
}

pub async fn a_run_makes_one_job_whoever_comes_first(store: Arc<dyn Store>) {
    store.add_schedule(hourly("news")).await.expect("works");
    let at = hourly("news").next_at;
    assert!(store.due_schedules(at - 1).await.expect("can be read").is_empty());
    let [schedule] = &store.due_schedules(at).await.expect("can be read")[..] else { panic!("one is due") };
    let racers = (0..20).map(|_| fire(&*store, schedule, at + 5));
    let made: Vec<_> = futures::future::join_all(racers).await.into_iter().flatten().collect();
    let [ids] = &made[..] else { panic!("one of them made jobs: {made:?}") };
    let job = get(&*store, ids[0]).await;
    assert_eq!((ids.len(), job.state, job.priority, job.max_attempts), (1, JobState::Available, 2, 9));
    assert_eq!(job.payload, schedule.job.payload);
    assert!(store.due_schedules(at + 5).await.expect("can be read").is_empty());
    let after = &store.schedules().await.expect("can be read")[0];
    assert_eq!(after.next_at, at + 3_600_000);
    assert_eq!(after.last, Some(LastJob { id: ids[0], due_at: at, state: JobState::Available }));
    assert_eq!(store.schedule_jobs("news".into(), 10).await.expect("can be read"), [(at, ids[0])]);
}

pub async fn several_runs_make_their_jobs_together(store: Arc<dyn Store>) {
    let schedule = Schedule { overlap: Overlap::Allow, ..hourly("news") };
    store.add_schedule(schedule.clone()).await.expect("works");
    let ids = fire(&*store, &schedule, schedule.next_at + 7_200_000).await.expect("is first");
    let made = store.schedule_jobs("news".into(), 10).await.expect("can be read");
    assert_eq!(made.len(), 3);
    assert_eq!(made.iter().map(|(_, id)| *id).rev().collect::<Vec<_>>(), ids, "newest first");
    assert_eq!(store.schedule_jobs("news".into(), 1).await.expect("can be read"), made[..1]);
}

pub async fn a_paused_schedule_makes_nothing(store: Arc<dyn Store>) {
    let schedule = hourly("news");
    store.add_schedule(schedule.clone()).await.expect("works");
    assert!(store.pause_schedule("news".into(), None, T0 + 1).await.expect("works"));
    assert!(store.pause_schedule("news".into(), None, T0 + 2).await.expect("works"), "twice is no error");
    assert_eq!(store.schedules().await.expect("can be read")[0].paused_at, Some(T0 + 1));
    let late = schedule.next_at + 9_000_000;
    assert!(store.due_schedules(late).await.expect("can be read").is_empty());
    assert_eq!(fire(&*store, &schedule, late).await, None, "also where it was read before");
    let resume_at = schedule.resume_at(late).expect("goes on");
    assert!(store.pause_schedule("news".into(), Some(resume_at), late).await.expect("works"));
    let resumed = &store.schedules().await.expect("can be read")[0];
    assert_eq!((resumed.paused_at, resumed.next_at), (None, resume_at));
    for resume_at in [None, Some(1)] {
        assert!(!store.pause_schedule("gone".into(), resume_at, T0).await.expect("works"));
    }
}

pub async fn what_a_removed_schedule_made_stays(store: Arc<dyn Store>) {
    let schedule = hourly("news");
    store.add_schedule(schedule.clone()).await.expect("works");
    let ids = fire(&*store, &schedule, schedule.next_at).await.expect("is first");
    assert!(store.remove_schedule("news".into()).await.expect("works"));
    assert_eq!(get(&*store, ids[0]).await.state, JobState::Available);
    assert_eq!(fire(&*store, &schedule, schedule.next_at).await, None);
    store.add_schedule(schedule.clone()).await.expect("works");
    assert!(fire(&*store, &schedule, schedule.next_at).await.is_some(), "a new one of its name begins afresh");
}
