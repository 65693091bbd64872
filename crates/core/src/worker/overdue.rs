//! Leases that ended and were not renewed: when they are taken from their workers.
//!
//! That a lease has ended says nothing about its worker. The database may have been locked for longer than leases
//! stand, the machine may have slept, or the process may have been stopped; and when it is over somebody looks first. So an
//! overdue lease is watched for as long as a living worker needs to renew it, and time counts only while whoever
//! watches can write, since who can is not held up, and neither are others.

use std::collections::HashMap;

use crate::clock::Millis;
use crate::job::JobId;
use crate::job::lease::WorkerId;
use crate::port::Overdue;

/// A lease is watched for at least so long, in milliseconds: processes look about once a second.
const LEAST_PATIENCE_MS: Millis = 2_000;

/// How long a lease is watched: a beat comes at every third of it.
fn patience(lease_ms: Millis) -> Millis {
    (lease_ms / 2).max(LEAST_PATIENCE_MS)
}

/// A look at overdue leases, and a write of our own right after it, by [`Clock::elapsed`](crate::clock::Clock::elapsed).
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// When it began.
    pub began: Millis,
    /// When the write was done; none if it could not be.
    pub wrote: Option<Millis>,
}

/// The leases that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched {
    leases: HashMap<JobId, Seen>,
    /// When the last look ended.
    last: Option<Millis>,
}

#[derive(Debug)]
struct Seen {
    overdue: Overdue,
    /// For how long it was not renewed though it could have been.
    waited: Millis,
}

impl Watched {
    /// Takes in what is overdue now, and gives what was watched for long enough by its worker's `lease_ms`.
    pub fn look(&mut self, overdue: Vec<Overdue>, look: Look, lease_ms: impl Fn(&WorkerId) -> Millis) -> Vec<Overdue> {
        let mut before = std::mem::take(&mut self.leases);
        let last = std::mem::replace(&mut self.last, look.wrote);
        let mut over = Vec::new();
        for lease in overdue {
            let patience = patience(lease_ms(&lease.worker));
            let waited = before.remove(&lease.lease.job).filter(|seen| seen.overdue == lease).map_or(0, |seen| {
                match (last, look.wrote) {
                    // Neither were we held up, nor whoever writes.
                    (Some(last), Some(wrote))
                        if wrote - look.began <= patience / 2 && look.began - last <= 2 * patience =>
                    {
                        seen.waited + (wrote - last).max(0)
                    }
                    _ => 0,
                }
            });
            if waited >= patience {
                over.push(lease);
            } else {
                self.leases.insert(lease.lease.job, Seen { overdue: lease, waited });
            }
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::lease::Lease;

    const LEASE: Millis = 30_000;

    fn overdue(job: i64, until: Millis) -> Overdue {
        Overdue { lease: Lease { job: JobId(job), token: 1 }, worker: WorkerId("w".into()), until }
    }

    /// Looks at one lease at each of these times; which of the looks take it.
    fn taken(looks: &[(Millis, Option<Millis>)]) -> Vec<bool> {
        let mut watched = Watched::default();
        let look = |(began, wrote): &(Millis, Option<Millis>)| {
            !watched.look(vec![overdue(1, 0)], Look { began: *began, wrote: *wrote }, |_| LEASE).is_empty()
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_lease_is_taken_after_half_of_its_length_in_which_it_could_have_been_renewed() {
        let looks: Vec<_> = (0..=15).map(|s| (s * 1000, Some(s * 1000 + 1))).collect();
        let taken = taken(&looks);
        assert_eq!(taken.iter().position(|taken| *taken), Some(15));
    }

    #[test]
    fn time_in_which_nobody_could_write_counts_for_nothing() {
        let mut looks: Vec<_> = (0..14).map(|s| (s * 1000, Some(s * 1000 + 1))).collect();
        // The write of this look waits for 36 s; what was waited before counts no more.
        looks.push((14_000, Some(50_000)));
        looks.extend((51..65).map(|s| (s * 1000, Some(s * 1000 + 1))));
        assert_eq!(taken(&looks), vec![false; looks.len()]);
        looks.push((65_000, Some(65_001)));
        assert_eq!(taken(&looks).last(), Some(&true));
        // Nor does a write that fails, or a time in which we stood still ourselves.
        assert_eq!(taken(&[(0, Some(1)), (14_000, Some(14_001)), (15_000, None), (16_000, Some(16_001))]), [false; 4]);
        assert_eq!(taken(&[(0, Some(1)), (3_600_000, Some(3_600_001)), (3_601_000, Some(3_601_001))]), [false; 3]);
    }

    #[test]
    fn a_lease_that_is_renewed_or_given_away_begins_anew() {
        let mut watched = Watched::default();
        let mut look = |at: Millis, lease: Overdue| {
            watched.look(vec![lease], Look { began: at, wrote: Some(at) }, |_| LEASE).len()
        };
        assert_eq!([look(0, overdue(1, 5)), look(14_000, overdue(1, 5))], [0, 0]);
        assert_eq!([look(15_000, overdue(1, 9)), look(29_000, overdue(1, 9))], [0, 0]);
        assert_eq!(look(30_000, overdue(1, 9)), 1);
        assert_eq!(look(31_000, overdue(1, 9)), 0, "and what was given is watched anew");
    }

    #[test]
    fn short_leases_are_watched_for_two_looks() {
        let mut watched = Watched::default();
        let mut look =
            |at: Millis| watched.look(vec![overdue(1, 0)], Look { began: at, wrote: Some(at) }, |_| 300).len();
        assert_eq!([look(0), look(1_000), look(2_000)], [0, 0, 1]);
    }
}
