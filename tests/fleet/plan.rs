//! What is going to happen to a fleet, made of a seed and of nothing else.

use super::WORKERS;
use super::worker::LEASE;
use crate::support::dice::Dice;

/// Something that happens to processes, their host, or the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// A worker is killed, and another takes its place.
    Kill { worker: usize },
    /// A worker stands still for longer than its leases do.
    Freeze { worker: usize, beyond_ms: u64 },
    /// A worker is asked to end, given some time, and replaced.
    End { worker: usize, after_ms: u64 },
    /// Another program holds the write lock.
    Lock { ms: u64 },
    /// The host's clock is set by an hour, forward and back in turn.
    SetClock,
    /// One of the database's files is moved away, or another one takes its name; later it is put back.
    Lose { file: usize, is_replaced: bool },
    /// What was done since a backup is undone: it takes the place of the database, or of one that was deleted.
    Rewind { how: Rewind, more: usize, after_ms: u64 },
    /// Nothing can be written by one worker, which may be asked to end then, or by all of them.
    Mute { worker: usize, whom: Mute, ms: u64 },
    /// A worker is replaced by one that may have few files open.
    Starve { worker: usize, files: u64 },
}

/// How a backup comes to be needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewind {
    /// Workers are killed, and it is restored.
    Killed,
    /// Workers are asked to end, and it is restored.
    Ended,
    /// The database is deleted while they work: so many of its files, itself first.
    Deleted { files: usize },
}

/// Who cannot write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mute {
    All,
    One,
    OneThatEnds,
}

/// Jobs that are enqueued, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    pub jobs: usize,
    pub blow: Blow,
    pub then_ms: u64,
}

/// How many kinds of blows there are.
pub const KINDS: u64 = 12;

/// Kinds of blows beyond the first of each, each as often as it is to happen.
const MORE: [u64; 15] = [0, 0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11];

/// How long a lease is watched before it is taken, and a look more.
const WATCHED_MS: u64 = 3_000;

/// The plan of `seed`. Every kind of blow is in it.
pub fn plan(seed: u64, jobs: u64) -> Vec<Round> {
    let mut dice = Dice(seed);
    let rounds = (jobs / 65).clamp(KINDS, 120);
    // Each kind once, shuffled; then as the dice say.
    let mut kinds: Vec<u64> = (0..KINDS).collect();
    for last in (1..kinds.len()).rev() {
        kinds.swap(last, dice.below(last as u64 + 1) as usize);
    }
    kinds.extend((KINDS..rounds).map(|_| MORE[dice.below(MORE.len() as u64) as usize]));
    let round = |(round, kind): (u64, u64)| {
        let blow = blow(kind, &mut dice);
        let jobs = jobs / rounds + u64::from(round < jobs % rounds);
        Round { jobs: jobs as usize, blow, then_ms: dice.below(300) }
    };
    (0..rounds).zip(kinds).map(round).collect()
}

fn blow(kind: u64, dice: &mut Dice) -> Blow {
    let lease_ms = LEASE.as_millis() as u64;
    let worker = dice.below(WORKERS as u64) as usize;
    match kind {
        0 => Blow::Kill { worker },
        1 => Blow::Freeze { worker, beyond_ms: 500 + dice.below(1000) },
        2 => Blow::End { worker, after_ms: dice.below(300) },
        3 => Blow::Lock { ms: 200 + dice.below(1300) },
        // For longer than leases stand, and mostly for longer than overdue ones are watched.
        4 => Blow::Lock { ms: lease_ms + dice.below(WATCHED_MS + 500) },
        5 => Blow::SetClock,
        6 | 7 => Blow::Lose { file: dice.below(3) as usize, is_replaced: kind == 7 },
        8 | 9 => {
            let how = match (kind, dice.below(2)) {
                (8, one) => Rewind::Deleted { files: if one == 0 { 1 } else { 3 } },
                (_, 0) => Rewind::Killed,
                _ => Rewind::Ended,
            };
            Blow::Rewind { how, more: 1 + dice.below(20) as usize, after_ms: 100 + dice.below(700) }
        }
        10 => {
            let whom = [Mute::All, Mute::One, Mute::OneThatEnds][dice.below(3) as usize];
            // Every other one for longer than leases stand and are watched.
            Blow::Mute { worker, whom, ms: 500 + dice.below(1000) + dice.below(2) * (lease_ms + WATCHED_MS) }
        }
        _ => Blow::Starve { worker, files: 20 + dice.below(20) },
    }
}

#[test]
fn a_seed_is_a_plan_and_every_kind_of_blow_is_in_it() {
    for seed in 0..50 {
        let rounds = plan(seed, 1000);
        assert_eq!(rounds, plan(seed, 1000));
        assert_ne!(rounds, plan(seed + 1, 1000));
        assert_eq!(rounds.iter().map(|round| round.jobs).sum::<usize>(), 1000);
        let has = |is: fn(&Blow) -> bool| rounds.iter().any(|round| is(&round.blow));
        let kinds: [fn(&Blow) -> bool; KINDS as usize] = [
            |blow| matches!(blow, Blow::Kill { .. }),
            |blow| matches!(blow, Blow::Freeze { .. }),
            |blow| matches!(blow, Blow::End { .. }),
            |blow| matches!(blow, Blow::Lock { ms } if *ms < 3_000),
            |blow| matches!(blow, Blow::Lock { ms } if *ms >= 3_000),
            |blow| matches!(blow, Blow::SetClock),
            |blow| matches!(blow, Blow::Lose { is_replaced: false, .. }),
            |blow| matches!(blow, Blow::Lose { is_replaced: true, .. }),
            |blow| matches!(blow, Blow::Rewind { how: Rewind::Deleted { .. }, .. }),
            |blow| matches!(blow, Blow::Rewind { how: Rewind::Killed | Rewind::Ended, .. }),
            |blow| matches!(blow, Blow::Mute { .. }),
            |blow| matches!(blow, Blow::Starve { .. }),
        ];
        assert!(kinds.into_iter().all(has), "{seed}");
    }
}
