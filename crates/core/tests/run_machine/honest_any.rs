//! Whatever a model says and does in whatever order: it is told once at most, and an answer in part says why.

use posse_core::run::journal::{EndStatus, Entry, Opening};
use posse_core::run::machine::Effect;
use proptest::prelude::*;

use super::honest::{Talk, WAYS, with_files};

#[derive(Debug, Clone, Copy)]
enum Move {
    Read,
    Write,
    WriteElsewhere,
    Fail,
    Say(&'static str),
    Crash,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let answers = [
        "Done.",
        "I wrote out/ships.txt.",
        "I did not write out/ships.txt.",
        "out/ships.txt is right already.",
        "Ich weiß es nicht.",
    ];
    let one = prop_oneof![
        2 => Just(Move::Read),
        1 => Just(Move::Write),
        1 => Just(Move::WriteElsewhere),
        2 => Just(Move::Fail),
        3 => prop::sample::select(answers.to_vec()).prop_map(Move::Say),
        1 => Just(Move::Crash),
    ];
    prop::collection::vec(one, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_run_is_told_once_at_most_and_ends_with_what_is_so(way in 0usize..4, moves in moves(), is_there in any::<bool>()) {
        let mut talk = Talk::about("Write the names of all ships to out/ships.txt.", WAYS[way]);
        let mut has_written = false;
        for one in moves {
            if talk.h.effect != Effect::AskModel {
                break;
            }
            match one {
                Move::Read => talk.done("read_file", "a.md"),
                Move::Write => talk.done("create_file", "out/ships.txt"),
                Move::WriteElsewhere => talk.done("create_file", "b.md"),
                Move::Fail => talk.fails("edit_file", "out/ships.txt"),
                Move::Say(answer) => talk.finish(answer),
                Move::Crash => {
                    talk.h.crash_and_pick_up();
                    &mut talk
                }
            };
            has_written |= matches!(one, Move::Write);
            if has_written || (is_there && matches!(one, Move::Read)) {
                talk.there = vec!["out/ships.txt"];
            }
        }
        let doubts = talk.h.journal.iter().filter(|recorded| matches!(recorded.entry, Entry::Doubted { .. })).count();
        prop_assert!(doubts <= 1);
        if let Some(ended) = talk.h.run.ended() {
            let why = ended.reason.clone().unwrap_or_default();
            match ended.status {
                EndStatus::Completed => prop_assert!(ended.reason.is_none()),
                EndStatus::Partial => prop_assert!(doubts == 1 && why.contains("out/ships.txt") && !has_written, "{}", why),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}

#[test]
fn what_a_run_is_told_of_a_file_at_its_beginning_counts_as_a_look() {
    let quoted = "- fleet.csv (9 bytes)\n\nWhat they say.\n\nFile fleet.csv:\n| Clio, 12\n";
    for (told, is_told) in [(quoted, true), ("- fleet.csv (9 bytes)\n| File fleet.csv:", false)] {
        let opening = Opening { workspace: Some(told.into()), ..with_files(WAYS[1].0, WAYS[1].1) };
        let mut talk = Talk::with(opening, "Which ship in fleet.csv is the longest?").where_are(&["fleet.csv"]);
        talk.finish("The Clio.");
        assert_eq!(talk.doubted().is_none(), is_told, "{told}");
    }
}
