//! What is going to happen to a fleet, made of a seed and of nothing else.

use super::WORKERS;
use super::worker::LEASE;
use crate::dice::Dice;

/// Something that happens to processes or their host.
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
}

/// Jobs that are enqueued, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    pub jobs: usize,
    pub blow: Blow,
    pub then_ms: u64,
}

/// Kinds of blows, each as often as it is to happen.
const KINDS: [u64; 8] = [0, 0, 0, 1, 2, 3, 4, 4];

/// The plan of `seed`. Every kind of blow is in it.
pub fn plan(seed: u64, jobs: u64) -> Vec<Round> {
    let mut dice = Dice(seed);
    let rounds = (jobs / 80).clamp(8, 120);
    // Each kind once, shuffled; then as the dice say.
    let mut kinds: Vec<u64> = (0..5).collect();
    for last in (1..kinds.len()).rev() {
        kinds.swap(last, dice.below(last as u64 + 1) as usize);
    }
    kinds.extend((5..rounds).map(|_| KINDS[dice.below(8) as usize]));
    let round = |(round, kind): (u64, u64)| {
        let worker = dice.below(WORKERS as u64) as usize;
        let blow = match kind {
            0 => Blow::Kill { worker },
            1 => Blow::Freeze { worker, beyond_ms: 500 + dice.below(1000) },
            2 => Blow::End { worker, after_ms: dice.below(300) },
            // Every other one for longer than leases stand.
            3 => Blow::Lock { ms: 200 + dice.below(1300) + dice.below(2) * LEASE.as_millis() as u64 },
            _ => Blow::SetClock,
        };
        let jobs = jobs / rounds + u64::from(round < jobs % rounds);
        Round { jobs: jobs as usize, blow, then_ms: dice.below(300) }
    };
    (0..rounds).zip(kinds).map(round).collect()
}

#[test]
fn a_seed_is_a_plan_and_every_kind_of_blow_is_in_it() {
    for seed in 0..50 {
        let rounds = plan(seed, 1000);
        assert_eq!(rounds, plan(seed, 1000));
        assert_ne!(rounds, plan(seed + 1, 1000));
        assert_eq!(rounds.iter().map(|round| round.jobs).sum::<usize>(), 1000);
        let has = |is: fn(&Blow) -> bool| rounds.iter().any(|round| is(&round.blow));
        let kinds: [fn(&Blow) -> bool; 5] = [
            |blow| matches!(blow, Blow::Kill { .. }),
            |blow| matches!(blow, Blow::Freeze { .. }),
            |blow| matches!(blow, Blow::End { .. }),
            |blow| matches!(blow, Blow::Lock { .. }),
            |blow| matches!(blow, Blow::SetClock),
        ];
        assert!(kinds.into_iter().all(has), "{seed}");
    }
}
