//! What a process counts as it works.

use posse_core::metrics::ModelTallies;
use posse_core::model::{FailedTry, Finish, ModelError, ModelErrorKind, ModelReply, Usage};
use std::collections::BTreeMap;

fn failed_try(input: u64) -> FailedTry {
    let usage = Usage { input, output: 1, ..Usage::default() };
    FailedTry { model: "m".into(), reason: "503".into(), usage }
}

#[test]
fn what_came_to_nothing_is_counted_too() {
    let tallies = ModelTallies::default();
    let reply = ModelReply {
        text: "yes".into(),
        reasoning: None,
        calls: vec![],
        refusal: None,
        finish: Finish::Stop,
        usage: Usage { input: 100, output: 10, cached: 60, estimated: false },
        model: "m".into(),
        cost_microusd: Some(42),
        failed_tries: vec![failed_try(7)],
    };
    let error = ModelError {
        kind: ModelErrorKind::RateLimited,
        message: "later".into(),
        retry_after: None,
        context_window: None,
        failed_tries: vec![failed_try(3), failed_try(3)],
    };
    tallies.model("e", "m").count(20, &Ok(reply));
    tallies.model("e", "m").count(30, &Err(error));
    let [counts] = &tallies.read()[..] else { panic!("one model was asked") };
    assert_eq!((counts.answered, counts.failed_tries), (1, 3));
    assert_eq!(counts.errors, BTreeMap::from([("rate_limited".to_owned(), 1)]));
    assert_eq!((counts.input_tokens, counts.cached_tokens, counts.output_tokens), (113, 60, 13));
    assert_eq!((counts.cost_microusd, counts.took.count, counts.took.sum_ms), (42, 2, 50));
}
