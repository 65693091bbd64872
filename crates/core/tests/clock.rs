//! Time as the core sees it.

use posse_core::clock::*;

#[test]
fn a_jump_is_told_once_and_time_that_passes_is_none() {
    let clock = ManualClock::at(1_000_000);
    let mut watch = JumpWatch::new(Reading::of(&clock));
    let mut look = |clock: &ManualClock| watch.look(Reading::of(clock));
    clock.advance(3_600_000);
    assert_eq!(look(&clock), None);
    clock.set_by(-3_600_000);
    assert_eq!((look(&clock), look(&clock)), (Some(-3_600_000), None));
    for _ in 0..100 {
        clock.set_by(JUMP_MS - 1);
        assert_eq!(look(&clock), None);
    }
}
