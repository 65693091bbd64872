//! What a goal asks for: whether something is to be written.

use posse_core::persona::PersonaTemplate;
use posse_core::run::wish::{asks_for_answer, asks_to_write, names_file};

#[test]
fn who_asks_to_be_told_something_does_not_ask_to_write() {
    let goals = [
        "Who owns the ferry?",
        "In which file does it say when the lighthouse was built",
        "On which quay does the Nora lie, and what does that cost?",
        "What did the two crossings cost together? Answer in euros.",
        "Which boats have to be painted by May?",
        "Is there a file that lists the cargo?",
        "How many lines does manifest.csv have?",
        "Count the crossings in crossings.csv.",
        "Add up all tolls of the month and say what is left.",
        "Add the weights of all crates together.",
        "The ferry takes 40 minutes and leaves at 9:50. When does it arrive?",
        "List all boats that sail to Spain.",
        "Read log.md and tell me whether they have fuel.",
        "Translate this into German: the boat that you see is green",
        "Who wrote the note in log.md? Do not change anything.",
        "Say what the log says of Nora, and write nothing.",
        "Which settings did they change, according to notes/april.txt?",
        "Summarise notes.txt in one sentence, with the most important date first.",
        "Whom do I ask to change the lamp?",
        "What is the correct address of the harbour master?",
    ];
    for goal in goals {
        assert!(!asks_to_write(goal), "{goal}");
    }
}

#[test]
fn who_asks_for_a_file_or_a_change_asks_to_write() {
    let goals = [
        "Write the names of all boats into boats.md.",
        "For each boat, write one line into boats.md.",
        "Which boats are green? Write their names into green.md.",
        "The ferry now costs 4.20 euros. Correct the price.",
        "Set the depth of the quay to 7.",
        "Add Clio as the last boat.",
        "Rename Nora to Leonora in all files.",
        "Make a table of all tolls in tolls.csv.",
        "Summarise log.md in short.md.",
        "Sum up the log in a new file.",
        "List all boats in boats.md.",
        "Could you put the depths into depth.json?",
        "Can you please delete the old timetable?",
        "I would like you to fix the year in log.md.",
        "The result should be saved beside the log.",
        "Read log.md and store the dates in dates.txt.",
        "1. Read the log.\n2. Append what is new to news.md.",
        "Don't answer; write it into a file.",
        "Tell me what you found and update the log.",
        "Check whether the price is 4.20 and if not fix it.",
        "boats.md has to say which of them are green: please complete it.",
    ];
    for goal in goals {
        assert!(asks_to_write(goal), "{goal}");
    }
}

#[test]
fn what_the_words_do_not_tell_may_be_to_write() {
    let goals = [
        "",
        "Boats",
        "Do the usual.",
        "The ferry costs 4.20 euros now.",
        "Wem gehört die Fähre?",
        "Schreibe die Namen aller Boote in boote.md.",
        "À qui est le bac ?",
        "渡し船は誰のものですか?",
        "Put these in order",
    ];
    for goal in goals {
        assert!(asks_to_write(goal), "{goal}");
    }
}

#[test]
fn an_answer_is_all_that_is_asked_for_where_nothing_speaks_of_writing() {
    let asked = |goal: &str, of: &str, backstory: &str, rules: &str| {
        let persona = PersonaTemplate { goal: of.into(), backstory: backstory.into(), ..PersonaTemplate::default() };
        asks_for_answer(goal, &persona, rules)
    };
    let question = "Who owns the ferry?";
    for persona in
        ["Help with the files of the harbour.", "Answer questions.", "Do what you are asked to do, and do no more."]
    {
        assert!(asked(question, persona, "", ""), "{persona}");
        assert!(asked(question, persona, "You are careful.", "Be brief with the captain."), "{persona}");
        assert!(!asked("Write the owner of the ferry into ferry.md.", persona, "", ""), "{persona}");
    }
    for persona in [
        "Keep the logbook of the harbour.",
        "Write or change files as you are asked.",
        "You are in charge of updating the timetable.",
        "Putting things where they belong is what you do, naïve as you are.",
        "Whatever you are asked is noted in questions.md.",
        "The one that edits the files.",
        "Beantworte Fragen zum Hafen.",
    ] {
        assert!(!asked(question, persona, "", ""), "{persona}");
        assert!(!asked(question, "Answer questions.", persona, ""), "{persona}");
    }
    assert!(
        !asked(question, "Answer questions.", "", "After each question, add a line to the log."),
        "rules count too"
    );
}

#[test]
fn a_word_that_has_an_ending_is_the_name_of_a_file() {
    for goal in ["Read log.md.", "What is in `out/all.csv`?", "(see notes.txt)", "src/main.rs"] {
        assert!(names_file(goal), "{goal}");
    }
    for goal in ["Read the log.", "e.g. in 2.5 lines", "Which is cheaper, A/B?", ".hidden", "at 9.50"] {
        assert!(!names_file(goal), "{goal}");
    }
}
