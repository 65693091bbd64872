//! What the facts of the bench's tasks take for right.

use posse_app::bench::{Bench, Files, Task};

fn wrong(kind: &str, answer: &str, made: &[(&str, &str)]) -> Option<String> {
    let bench = Bench::built_in().expect("read");
    let task: &Task = bench.tasks.iter().find(|task| task.kind == kind).expect("one of each kind");
    let before = bench.files(task);
    let mut after = before.clone();
    after.extend(made.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
    task.wrong(answer, &before, &after)
}

#[test]
fn numbers_and_names_are_found_however_they_are_written() {
    let right = [
        ("sum", "56"),
        ("sum", "Together **56.00** t."),
        ("count", "Two fields"),
        ("count", "(2)"),
        ("lookup", "shelf t1."),
    ];
    for (kind, answer) in right {
        assert_eq!(wrong(kind, answer, &[]), None, "{answer}");
    }
    for (kind, answer) in
        [("sum", "560"), ("sum", "1,056"), ("sum", "56.5"), ("sum", "0.56"), ("count", "12"), ("lookup", "T12")]
    {
        assert!(wrong(kind, answer, &[]).is_some_and(|why| why.starts_with("the answer lacks")), "{answer}");
    }
    assert_eq!(wrong("lookup", "On T1 or F3.", &[]).as_deref(), Some("the answer has 'F3'"));
    let note = ("service.txt", "Tractor: service at 6,400 hours; meter at 6120.");
    assert_eq!(wrong("write", "Done.", &[note]), None);
}

#[test]
fn what_is_not_there_has_to_be_said() {
    for answer in ["The files do not say.", "It isn't given.", "Unknown"] {
        assert_eq!(wrong("absent", answer, &[]), None, "{answer}");
    }
    for answer in ["320 pages.", "It has an unknown number: 320."] {
        let why = wrong("absent", answer, &[]);
        assert_eq!(why.as_deref(), Some("the answer does not say that it is not there"), "{answer}");
    }
    assert_eq!(wrong("absent", " ", &[]).as_deref(), Some("there is no answer"));
}

#[test]
fn files_are_as_asked_and_no_others_are_touched() {
    let json = "[{\"field\": \"North\"}]";
    assert_eq!(wrong("convert", "Done.", &[]).as_deref(), Some("land/fields.json is not there"));
    assert_eq!(
        wrong("convert", "Done.", &[("land/fields.json", json)]).as_deref(),
        Some("land/fields.json says something else")
    );
    assert!(
        wrong("convert", "Done.", &[("land/fields.json", "field: North")])
            .is_some_and(|why| why.contains("is no JSON"))
    );
    assert_eq!(wrong("sum", "56", &[("sum.txt", "56")]).as_deref(), Some("sum.txt was made, which nobody asked for"));
    let changed = [("land/harvest.csv", "")];
    assert_eq!(wrong("sum", "56", &changed).as_deref(), Some("land/harvest.csv was changed, which nobody asked for"));
    let bench = Bench::built_in().expect("read");
    for task in &bench.tasks {
        let before = bench.files(task);
        assert!(!before.is_empty(), "{} has a world", task.kind);
        assert!(task.wrong("I looked at the files.", &before, &before).is_some(), "{}", task.kind);
        let why = task.wrong("56", &before, &Files::new());
        assert!(why.is_some(), "{}", task.kind);
    }
}
