//! Whatever personas, models, tools, people and crashes do.

use posse_core::run::machine::Effect;
use proptest::prelude::*;
use std::collections::HashMap;

use super::histories::{Move, moves, play, setups};
use super::kit::{Harness, half_the_bytes};

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// The harness checks after every step that the journal replays to the live state, that another
    /// worker would do the same, that every request can be sent and has the task in it word for
    /// word, and that no call moves in the ledger as it may not. Here, besides: nothing that must
    /// not run twice does, limits hold, and a run that has ended has left no call behind.
    #[test]
    fn any_history_holds_together(setup in setups(), moves in moves()) {
        // Some texts keep it from answering, which another worker finds alike.
        let moody = |text: &str| half_the_bytes(text).filter(|_| !text.contains("\"a\": 2"));
        let mut h = Harness::begin_with(setup.opening(), moody);
        let mut runs: HashMap<String, u32> = HashMap::new();
        let mut in_flight: Vec<String> = Vec::new();
        let mut turns_before = 0;
        for one in moves {
            let reopened = matches!(one, Move::Reopen);
            if !play(&mut h, setup.structured, one, &mut in_flight) {
                continue;
            }
            if let Effect::RunCalls(calls) = &h.effect {
                in_flight.clear();
                for call in calls {
                    in_flight.push(call.request.id.clone());
                    let count = runs.entry(call.request.id.clone()).or_default();
                    *count += 1;
                    let again = call.effect.is_some_and(|effect| effect.repeatable());
                    prop_assert!(*count == 1 || again, "{:?} was run {} times", call.request, count);
                }
            } else if h.effect != Effect::Wait {
                in_flight.clear();
            }
            if reopened {
                turns_before = h.run.turns();
            }
            prop_assert!(h.run.turns() - turns_before <= setup.limits.max_turns);
            if h.effect == Effect::AskModel {
                prop_assert_eq!(h.run.limit_reached(), None);
            }
        }
    }
}
