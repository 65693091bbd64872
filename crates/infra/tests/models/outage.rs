//! What a process knows of endpoints that are out.

use posse_core::clock::ManualClock;
use posse_core::id::JobId;
use posse_core::model::asking_for;
use posse_infra::model::outage::{Outages, Trouble};
use std::sync::Arc;

#[tokio::test]
async fn those_who_wait_come_back_one_after_the_other() {
    for jobs in [1, 7, 50, 400] {
        let outages = Outages::new(Arc::new(ManualClock::at(1_000_000)));
        let mut back = Vec::new();
        // They wait twice: at first nobody knows how many they are.
        for job in (0..jobs).chain(0..jobs) {
            let wait = asking_for(JobId(job), async { outages.waits("e", Trouble::Theirs, "503", 10_000) }).await;
            back.push(wait.as_secs_f64());
        }
        for back in back.chunks(jobs as usize) {
            let in_a_second = |from: f64| back.iter().filter(|at| (from..from + 1.0).contains(*at)).count();
            let most = back.iter().map(|at| in_a_second(*at)).max().unwrap_or_default();
            assert!(jobs < 20 || most * 100 <= jobs as usize * 16, "{most} of {jobs}");
        }
        assert!(outages.any());
        outages.is_back("e");
        assert!(!outages.any());
    }
}
