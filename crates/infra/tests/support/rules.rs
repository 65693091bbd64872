//! What providers differ in, all of it.

use posse_core::model::conversation::{ReasoningBack, Rules};

/// Every provider there could be.
pub fn all_rules() -> Vec<Rules> {
    let mut all = Vec::new();
    for bits in 0..16 {
        for reasoning in [ReasoningBack::Required, ReasoningBack::Optional, ReasoningBack::Forbidden] {
            let [user_after_tool, take_turns, several_systems, signed_calls] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            all.push(Rules { user_after_tool, take_turns, reasoning, several_systems, signed_calls });
        }
    }
    all
}
