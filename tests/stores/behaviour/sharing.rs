//! Several processes on one database.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::Barrier;

use super::rotation::fair;
use super::ruling::{at_once, queued};
use super::unique::keyed;
use super::*;
use posse_core::model::breaker::FIRST_REST_MS;
use posse_core::queue::rate::Pass;
use posse_core::queue::rules::Scope;

async fn four(door: &dyn Door) -> Vec<Arc<dyn Store>> {
    let mut stores = vec![door.fresh().await];
    for _ in 0..3 {
        stores.push(door.again().await);
    }
    stores
}

pub async fn fifty_enqueue_one_key_at_once(door: &dyn Door) {
    let stores = four(door).await;
    let barrier = Arc::new(Barrier::new(50));
    let asked: Vec<_> = (0..50)
        .map(|n| {
            let (store, barrier) = (Arc::clone(&stores[n % 4]), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                let got = store.enqueue(vec![keyed("k1", None)], T0).await.expect("works")[0];
                // Never a reply for a job that is not there.
                assert!(store.job(got.id).await.expect("can be read").is_some());
                got
            })
        })
        .collect();
    let mut ids = HashSet::new();
    let mut new = 0;
    for ask in asked {
        let got = ask.await.expect("ends");
        ids.insert(got.id);
        new += usize::from(!got.existed());
    }
    assert_eq!((ids.len(), new), (1, 1));
}

pub async fn the_rotation_goes_on_from_process_to_process(door: &dyn Door) {
    let stores = four(door).await;
    fair(&*stores[0], Scope::All).await;
    let keys = ["a", "b", "c"];
    enqueue_all(&*stores[0], keys.iter().flat_map(|key| vec![queued("q", key); 4]).collect(), T0).await;
    for n in 0..8 {
        // Each begins where another one left off, and so does one that was not there before.
        let newcomer = door.again().await;
        let store = if n % 2 == 0 { &stores[n % 4] } else { &newcomer };
        let claimed = claim(&**store, "r", 1, T0).await;
        assert_eq!(claimed[0].job.concurrency_key.as_deref(), Some(keys[n % 3]), "round {n}");
    }
}

pub async fn limits_hold_over_processes(door: &dyn Door) {
    let stores = four(door).await;
    stores[0].set_limits(Scope::Queue("q".into()), at_once(8), T0).await.expect("is set");
    enqueue_all(&*stores[0], vec![queued("q", ""); 200], T0).await;
    let barrier = Arc::new(Barrier::new(4));
    let claimers: Vec<_> = stores
        .iter()
        .map(|store| {
            let (store, barrier) = (Arc::clone(store), Arc::clone(&barrier));
            tokio::spawn(async move {
                let mut done = 0;
                for _ in 0..20 {
                    barrier.wait().await;
                    let got = claim(&*store, "r", 5, T0).await;
                    barrier.wait().await;
                    // Nobody claims or finishes now.
                    let running = store.queue_states().await.expect("can be read")[0].running;
                    assert_eq!(running, 8, "as many as may, and no more");
                    barrier.wait().await;
                    done += got.len();
                    for claimed in got {
                        finish(&*store, claimed.lease, Event::Complete, T0).await;
                    }
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for claimer in claimers {
        done += claimer.await.expect("ends");
    }
    assert_eq!(done, 160);
}

pub async fn rules_are_seen_by_all_processes_at_once(door: &dyn Door) {
    let stores = four(door).await;
    enqueue_all(&*stores[0], vec![job("r"); 4], T0).await;
    for (n, store) in stores.iter().enumerate() {
        stores[(n + 1) % 4].pause(Scope::All, T0).await.expect("is paused");
        assert!(claim(&**store, "r", 1, T0).await.is_empty());
        stores[(n + 2) % 4].resume(Scope::All).await.expect("is resumed");
        assert_eq!(claim(&**store, "r", 1, T0).await.len(), 1);
    }
}

pub async fn one_process_probes_for_all(door: &dyn Door) {
    let stores = four(door).await;
    let about = asking::out(&*stores[0], T0).await;
    let mut gone = 0;
    for store in &stores {
        let pass = store.reserve(about.clone(), 0, T0 + FIRST_REST_MS).await.expect("works");
        gone += usize::from(pass == Pass::Probe);
    }
    assert_eq!(gone, 1);
}
