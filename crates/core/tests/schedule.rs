//! Schedules: rules that make jobs at times, kept in the database.

mod cron;

use posse_core::clock::Millis;
use posse_core::job::{JobId, JobState, NewJob};
use posse_core::schedule::*;

const HOUR: Millis = 3_600_000;
/// 2027-03-01T00:00:00Z.
const T: Millis = 1_803_859_200_000;

fn hourly(missed: Missed, overlap: Overlap) -> Schedule {
    let job = NewJob { role: "r".into(), ..NewJob::default() };
    Schedule::new("news", ("0 * * * *", "UTC"), job, (missed, overlap), T).expect("a schedule")
}

#[test]
fn a_run_in_time_is_one_job_whatever_the_rule() {
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        let schedule = hourly(missed, Overlap::Allow);
        assert_eq!(schedule.next_at, T + HOUR);
        let due = schedule.fall_due(T + HOUR + 900).expect("a rule");
        assert_eq!(due, Due { runs: vec![T + HOUR], left_out: None, next_at: T + 2 * HOUR });
    }
}

#[test]
fn three_hours_of_downtime_are_made_up_for_as_the_rule_says() {
    let now = T + 3 * HOUR + HOUR / 2;
    let runs = |missed| hourly(missed, Overlap::Allow).fall_due(now).expect("a rule");
    assert_eq!(runs(Missed::Once).runs.len(), 1);
    assert_eq!(runs(Missed::All).runs, [T + HOUR, T + 2 * HOUR, T + 3 * HOUR]);
    let skipped = runs(Missed::Skip);
    assert!(skipped.runs.is_empty() && skipped.left_out.is_some_and(|why| why.contains("skipped")));
    for missed in [Missed::Skip, Missed::Once, Missed::All] {
        assert_eq!(runs(missed).next_at, T + 4 * HOUR, "nothing is made up for twice");
    }
    // Back at the very minute of a run: that one is in time, and with `once` stands for all.
    let at_a_run = hourly(Missed::Once, Overlap::Allow).fall_due(T + 5 * HOUR + 1).expect("a rule");
    assert_eq!(at_a_run.runs, [T + 5 * HOUR]);
}

#[test]
fn catching_up_makes_all_of_them_some_at_a_time() {
    let mut schedule = hourly(Missed::All, Overlap::Allow);
    let now = T + 1000 * HOUR;
    let mut made = Vec::new();
    while schedule.next_at <= now {
        let due = schedule.fall_due(now).expect("a rule");
        assert!((1..=MAX_CATCH_UP).contains(&due.runs.len()) && due.left_out.is_none(), "{due:?}");
        made.extend(due.runs);
        schedule.next_at = due.next_at;
    }
    let all: Vec<_> = (1..=1000).map(|hour| T + hour * HOUR).collect();
    assert_eq!((made, schedule.next_at), (all, now + HOUR));
}

#[test]
fn runs_do_not_overlap_where_they_must_not() {
    let mut schedule = hourly(Missed::All, Overlap::Skip);
    assert_eq!(schedule.fall_due(T + 3 * HOUR).expect("a rule").runs, [T + 3 * HOUR], "one at a time");
    for (state, jobs) in [(JobState::Running, 0), (JobState::Suspended, 0), (JobState::Discarded, 1)] {
        schedule.last = Some(LastJob { id: JobId(7), due_at: T, state });
        let due = schedule.fall_due(T + HOUR).expect("a rule");
        assert_eq!((due.runs.len(), due.next_at), (jobs, T + 2 * HOUR), "{state}");
        assert_eq!(due.left_out.is_some_and(|why| why.contains("job 7")), jobs == 0, "{state}");
    }
}

#[test]
fn what_cannot_be_a_schedule_is_refused() {
    let refused = |name, cron, zone| {
        Schedule::new(name, (cron, zone), NewJob::default(), Default::default(), T).expect_err("refused").field
    };
    assert_eq!(refused("Big News", "* * * * *", "UTC"), "name");
    assert_eq!(refused("news", "0 9 30 2 *", "UTC"), "schedule");
    assert_eq!(refused("news", "0 9 * * *", "Oslo"), "schedule");
    assert_eq!("most".parse::<Missed>(), Err("'most' is no rule for missed runs; there are skip once all".into()));
}
