//! What holds whatever is done, in cases that proptest thinks of.

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestRunner};

use super::{Door, any_waits, limited, model, world};

/// Tries `holds` with values of a strategy, each with a door of its own. `PROPTEST_CASES` asks for more of them; what
/// failed once is kept beside the file `source`.
fn each<D: Door, S: Strategy>(door: fn() -> D, source: &'static str, values: S, holds: impl AsyncFn(&D, S::Value)) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48);
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        source_file: Some(source),
        ..ProptestConfig::with_cases(cases)
    });
    let outcome = runner.run(&values, |value| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(holds(&door(), value));
        Ok(())
    });
    if let Err(failed) = outcome {
        panic!("{failed}\n{runner}");
    }
}

pub fn any_sequence_of_operations_follows_the_transition_function<D: Door>(door: fn() -> D, source: &'static str) {
    each(door, source, model::ops(), async |door, ops| model::agrees(door.fresh().await, ops).await);
}

pub fn any_sequence_on_jobs_that_belong_together_follows_a_simple_model<D: Door>(
    door: fn() -> D,
    source: &'static str,
) {
    each(door, source, world::ops(), async |door, ops| world::agree(door.fresh().await, ops).await);
}

pub fn every_job_ends_or_is_explained<D: Door>(door: fn() -> D, source: &'static str) {
    each(door, source, any_waits::plans(), async |door, (nodes, order)| {
        any_waits::every_job_ends_or_is_explained(door.fresh().await, nodes, order).await;
    });
}

pub fn no_limit_is_ever_exceeded_and_no_place_is_lost<D: Door>(door: fn() -> D, source: &'static str) {
    each(door, source, limited::ops(), async |door, ops| {
        limited::holds([door.fresh().await, door.again().await, door.again().await], ops).await;
    });
}
