//! Answers that the tools do not bear out: told once, and if they stand, good in part.

use std::sync::Arc;

use posse_core::model::{CallRequest, Message, ModelReply, ToolCalling};
use posse_core::persona::{RunLimits, Style};
use posse_core::run::Run;
use posse_core::run::journal::{EndStatus, Entry, OfferedTool, Opening};
use posse_core::run::machine::Effect;
use posse_core::run::phase::AGENT_STEP;
use posse_core::tool::{EffectClass, ToolError, ToolErrorCategory, ToolOutput, ToolSpec, Writes};
use serde_json::{Value, json};

use super::kit::{Harness, opening};
use super::parts;
use super::sendable::unsendable;

fn tool(name: &str, effect: EffectClass, writes: Writes) -> OfferedTool {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    OfferedTool {
        spec: ToolSpec { name: name.into(), description: "does it".into(), parameters },
        effect,
        writes,
        own_words: false,
    }
}

pub fn with_files(calling: ToolCalling, style: Style) -> Opening {
    let mut opening = Opening::clone(&opening(calling, RunLimits::default()));
    opening.persona.style = style;
    opening.tools = vec![
        tool("create_file", EffectClass::Once, Writes::File),
        tool("edit_file", EffectClass::Once, Writes::File),
        tool("read_file", EffectClass::Pure, Writes::Anything),
        tool("run_command", EffectClass::Once, Writes::Anything),
    ];
    opening
}

/// A run in one of the ways in which runs go, and what its model says in it.
pub struct Talk {
    pub h: Harness,
    calling: ToolCalling,
    style: Style,
    pub there: Vec<&'static str>,
}

pub const WAYS: [(ToolCalling, Style); 4] = [
    (ToolCalling::Native, Style::Direct),
    (ToolCalling::Structured, Style::Direct),
    (ToolCalling::Native, Style::Phased),
    (ToolCalling::Structured, Style::Phased),
];

impl Talk {
    pub fn about(goal: &str, (calling, style): (ToolCalling, Style)) -> Talk {
        Talk::with(with_files(calling, style), goal)
    }

    pub fn with(opening: Opening, goal: &str) -> Talk {
        let (calling, style) = (opening.calling, opening.persona.style);
        Talk { h: Harness::begin_with(goal, Arc::new(opening)), calling, style, there: Vec::new() }
    }

    pub fn where_are(mut self, there: &[&'static str]) -> Talk {
        self.there = there.to_vec();
        self
    }

    fn step(&mut self, name: &str, arguments: Value) -> &mut Talk {
        let call = |name: &str, arguments: &Value| {
            let (name, arguments) = (name.to_owned(), arguments.to_string());
            CallRequest { id: "same".into(), name, arguments, extra: None }
        };
        let reply = match (self.calling, self.style) {
            (ToolCalling::Native, Style::Direct) => parts::reply("", vec![call(name, &arguments)]),
            (ToolCalling::Structured, Style::Direct) => {
                let step = json!({"thinking": "t", "tool": name, "arguments": arguments});
                parts::reply(&step.to_string(), Vec::new())
            }
            (calling, Style::Phased) => {
                let step = match name {
                    "finish" => json!({"phase": "end", "thinking": "t", "summary": "s", "end_status": "solved",
                                       "end_message": arguments["final_summary"]}),
                    _ => json!({"phase": "act", "thinking": "t", "summary": "s",
                                "action": {"tool_name": name, "tool_input": arguments}}),
                };
                match calling {
                    ToolCalling::Native => parts::reply("", vec![call(AGENT_STEP, &step)]),
                    ToolCalling::Structured => parts::reply(&step.to_string(), Vec::new()),
                }
            }
        };
        self.say(reply)
    }

    fn say(&mut self, reply: ModelReply) -> &mut Talk {
        self.h.say_where(&self.there, reply);
        self
    }

    pub fn finish(&mut self, answer: &str) -> &mut Talk {
        self.step("finish", json!({"final_summary": answer}))
    }

    fn call(&mut self, name: &str, path: &str, result: Result<ToolOutput, ToolError>) -> &mut Talk {
        self.step(name, json!({"path": path}));
        let running = self.h.running();
        let [(id, _)] = &running[..] else { panic!("{running:?}") };
        self.h.end_call(id, result);
        self
    }

    pub fn done(&mut self, name: &str, path: &str) -> &mut Talk {
        self.call(name, path, Ok(format!("{name} did well").into()))
    }

    fn all_done(&mut self, name: &str, paths: &[&str]) -> &mut Talk {
        paths.iter().for_each(|path| {
            self.done(name, path);
        });
        self
    }

    pub fn fails(&mut self, name: &str, path: &str) -> &mut Talk {
        let error = ToolError::new(ToolErrorCategory::Conflict, format!("old_text does not occur in '{path}'"));
        self.call(name, path, Err(error))
    }

    /// What the model was told of the answer that was held back, if it just was.
    pub fn doubted(&self) -> Option<String> {
        let Some(Entry::Doubted { text, .. }) = self.h.journal.last().map(|recorded| &recorded.entry) else {
            return None;
        };
        let told = match self.h.run.messages().last() {
            Some(Message::Tool { text, .. } | Message::User { text }) => text.clone(),
            other => panic!("{other:?}"),
        };
        assert!(told.contains(text) && self.h.effect == Effect::AskModel, "{told}");
        assert_eq!(unsendable(self.h.run.messages()), Vec::<String>::new());
        Some(told)
    }
}

const WRITE: &str = "Write the names of all ships to out/ships.txt.";

#[test]
fn a_file_that_is_said_to_be_written_and_is_not_there_is_told_once_and_then_the_answer_is_good_in_part() {
    for way in WAYS {
        let mut talk = Talk::about(WRITE, way);
        talk.finish("The names were written to out/ships.txt.");
        let told = talk.doubted().expect("told");
        assert!(told.contains("out/ships.txt was written, but no call of yours wrote it"), "{told}");
        assert!(told.contains("Do it now with create_file or edit_file"), "{told}");
        talk.finish("I have written the names to out/ships.txt.");
        let (status, text, reason) = talk.h.ended();
        assert_eq!((status, text.as_str()), (EndStatus::Partial, "I have written the names to out/ships.txt."));
        assert_eq!(reason, "the answer says that out/ships.txt was written, but no call wrote it, and it is not there");
        let output = talk.h.run.output();
        assert_eq!((output.status.as_str(), output.reason), ("partial", Some(reason)));
        assert_eq!(output.end_status, (way.1 == Style::Phased).then(|| "partial".to_owned()));
    }
}

#[test]
fn who_does_it_once_told_has_a_whole_answer() {
    for way in WAYS {
        let mut talk = Talk::about(WRITE, way);
        talk.finish("Done.");
        assert!(
            talk.doubted().expect("told").contains("The task asks for out/ships.txt, and there is no such file yet")
        );
        talk.done("create_file", "out/ships.txt").finish("Done.");
        assert_eq!(talk.h.ended(), (EndStatus::Completed, "Done.".into(), String::new()));
    }
}

#[test]
fn what_a_tool_said_was_wrong_with_a_call_is_no_answer() {
    const WRONG: &str = "no such file or folder 'ships.csv'. The workspace has ships.md, quay.md and log/monday.txt";
    for way in WAYS {
        let wrong = || Err(ToolError::new(ToolErrorCategory::NotFound, WRONG));
        let mut talk = Talk::about("Which ship is green?", way);
        talk.call("read_file", "ships.csv", wrong()).finish(&format!("Sorry: {}", WRONG.to_uppercase()));
        let told = talk.doubted().expect("told");
        assert!(told.contains("It is what a tool said was wrong with your call. Do the task in another way"), "{told}");
        talk.finish(WRONG);
        let (status, _, reason) = talk.h.ended();
        assert_eq!((status, &*reason), (EndStatus::Partial, "the answer is what a tool said was wrong with a call"));

        let mut talk = Talk::about("Which ship is green?", way);
        talk.call("read_file", "ships.csv", wrong()).finish("There is no ships.csv: the files do not say it.");
        assert_eq!(talk.h.ended().0, EndStatus::Completed, "its own words");
        let mut talk = Talk::about("Which files are there?", way);
        talk.call("read_file", "ships.csv", wrong()).done("read_file", "ships.md").finish(WRONG);
        assert_eq!(talk.h.ended().0, EndStatus::Completed, "it went on");
    }
}

#[test]
fn an_answer_in_words_is_held_back_too() {
    let mut talk = Talk::about(WRITE, WAYS[0]);
    talk.say(parts::reply("I wrote out/ships.txt.", Vec::new()));
    assert!(matches!(talk.h.run.messages().last(), Some(Message::User { .. })));
    assert!(talk.doubted().is_some());
    talk.say(parts::reply("I wrote out/ships.txt.", Vec::new()));
    assert_eq!(talk.h.ended().0, EndStatus::Partial);
}

#[test]
fn a_worker_that_dies_between_the_two_answers_changes_nothing() {
    for way in WAYS {
        let mut talk = Talk::about(WRITE, way);
        talk.finish("I wrote out/ships.txt.");
        let before = format!("{:?}", talk.h.run.request());
        talk.h.crash_and_pick_up();
        assert_eq!((&talk.h.effect, format!("{:?}", talk.h.run.request())), (&Effect::AskModel, before));
        talk.finish("I wrote out/ships.txt.");
        assert_eq!(talk.h.ended().0, EndStatus::Partial, "it is not told again");
        // Every beginning of the journal is a run that some worker can go on with.
        for until in 1..=talk.h.journal.len() {
            let run = Run::replay(&talk.h.journal[..until]);
            assert_eq!(run.next_seq(), until as u64);
        }
    }
}

#[test]
fn an_edit_that_failed_is_seen_also_where_the_goal_names_no_file() {
    let cases = [
        ("Mark the ship Clio as sold, in all of the files.", "Clio is marked as sold."),
        ("Change the port in app.toml to 8080.", "The port is 8080 now."),
        ("Change the port in app.toml to 8080.", "I changed the port in app.toml to 8080."),
    ];
    for way in WAYS {
        for (goal, answer) in cases {
            let mut talk = Talk::about(goal, way).where_are(&["app.toml", "ships.md"]);
            talk.fails("edit_file", if goal.contains("app") { "app.toml" } else { "ships.md" }).finish(answer);
            assert!(talk.doubted().is_some(), "{goal} {answer}");
            talk.finish(answer);
            assert_eq!(talk.h.ended().0, EndStatus::Partial, "{goal} {answer}");
        }
    }
}

#[test]
fn another_file_than_the_one_asked_for_does_not_count() {
    for way in WAYS {
        let mut talk = Talk::about("Add the line \"done\" to notes.md.", way).where_are(&["notes.md"]);
        talk.done("create_file", "note.md").finish("The line was added.");
        let told = talk.doubted().expect("told");
        assert!(told.contains("asks to write notes.md, and no call of yours has changed it"), "{told}");
    }
}

#[test]
fn a_file_that_the_task_is_about_has_to_be_looked_at() {
    for way in WAYS {
        let goal = "Which ship in fleet.csv is the longest?";
        let mut talk = Talk::about(goal, way).where_are(&["fleet.csv"]);
        talk.finish("The Clio.");
        assert!(talk.doubted().expect("told").contains("The task is about fleet.csv, and you have not looked at it"));
        talk.done("read_file", "fleet.csv").finish("The Clio.");
        assert_eq!(talk.h.ended().0, EndStatus::Completed);

        let mut talk = Talk::about(goal, way).where_are(&["fleet.csv"]);
        talk.finish("The Clio.").finish("The Clio.");
        let (status, _, reason) = talk.h.ended();
        assert_eq!(
            (status, reason.as_str()),
            (EndStatus::Partial, "the task is about fleet.csv, and no call has looked at it")
        );
    }
}

#[test]
fn what_cannot_be_done_is_said_and_what_was_asked_for_is_still_not_there() {
    let mut talk = Talk::about(WRITE, WAYS[0]);
    talk.finish("I wrote the names to out/ships.txt.").finish("I could not write out/ships.txt.");
    let (status, _, reason) = talk.h.ended();
    assert_eq!((status, reason.as_str()), (EndStatus::Partial, "out/ships.txt was asked for, and is not there"));

    let mut talk = Talk::about("Change the port in app.toml to 8080.", WAYS[0]).where_are(&["app.toml"]);
    talk.done("read_file", "app.toml").finish("The port is 8080.");
    assert!(talk.doubted().is_some());
    talk.finish("The port was 8080 already.");
    assert_eq!(talk.h.ended().0, EndStatus::Completed);
}

#[test]
fn an_answer_that_was_held_back_is_better_than_none() {
    for (limits, words) in [
        (RunLimits { max_turns: 1, ..RunLimits::default() }, "not there"),
        (RunLimits { max_turns: 3, ..RunLimits::default() }, "3 model turns"),
        (RunLimits { max_turns: 100, ..RunLimits::default() }, "with the same result"),
    ] {
        let mut opening = with_files(ToolCalling::Native, Style::Direct);
        opening.persona.limits = limits;
        let mut talk = Talk::with(opening, WRITE);
        talk.finish("I wrote out/ships.txt.");
        while talk.h.effect == Effect::AskModel {
            talk.done("read_file", "a.md");
        }
        let (status, text, reason) = talk.h.ended();
        assert_eq!((status, text.as_str()), (EndStatus::Partial, "I wrote out/ships.txt."));
        assert!(reason.starts_with("the answer says") && reason.contains(words), "{reason}");
    }
}

#[test]
fn who_goes_on_with_an_ended_run_is_told_anew() {
    let mut talk = Talk::about(WRITE, WAYS[0]);
    talk.finish("Done.").finish("Done.");
    assert_eq!(talk.h.ended().0, EndStatus::Partial);
    let entry = Entry::Reopened;
    talk.h.run.apply(&entry);
    talk.h.journal.push(posse_core::run::journal::Recorded { seq: talk.h.journal.len() as u64, at: 0, entry });
    talk.h.crash_and_pick_up();
    talk.finish("Done.");
    assert!(talk.doubted().is_some());
}

/// What a run was asked, which files are there, what it wrote, and what it says.
type Case = (&'static str, &'static [&'static str], &'static [&'static str], &'static str);

/// Answers that nothing is wrong with, or at least nothing that anybody could be sure of.
const HONEST: &[Case] = &[
    ("What is 2+2?", &[], &[], "4"),
    ("Write a poem about the sea.", &[], &[], "The sea is wide, and so am I."),
    ("Write a story about a student.", &[], &[], "I saved my thesis to thesis.doc and went to bed."),
    ("Which ship is green?", &["a.md"], &[], "Clio, says a.md."),
    ("Where is the report?", &["a.md"], &[], "The report is in a.md."),
    ("Which file was made last?", &["a.md"], &[], "a.md was created in 2019 by Ann."),
    ("Write the names to names.txt.", &[], &["names.txt"], "I wrote the names to names.txt."),
    ("Write the names to names.txt.", &[], &["out/names.txt"], "The names were written to names.txt."),
    ("Write the names to ./out/names.txt.", &[], &["out/names.txt"], "Done."),
    ("Write the names to names.txt.", &[], &["/w/names.txt"], "names.txt has been created."),
    ("Write the names to /w/out/names.txt.", &[], &["out/names.txt"], "Done."),
    ("Write the names to out/names.txt.", &[], &["/w/out/Names.txt"], "Done."),
    ("Write the names to names.txt.", &[], &[], "There are no names, so I did not write names.txt."),
    ("Write the names to names.txt.", &["names.txt"], &[], "names.txt already has all names."),
    ("Write the names to names.txt.", &[], &[], "I couldn't create names.txt."),
    ("If anything is wrong, write it to wrong.txt.", &[], &[], "All is well."),
    ("Check a.md. Unless it is empty, copy it to b.md.", &["a.md"], &[], "It is empty."),
    ("Do not write to a.md. What does it say?", &[], &[], "It says hello."),
    ("How do I write to a.md?", &["a.md"], &[], "Use echo hello > a.md."),
    ("Explain how to add a line to a.md and save it as b.md.", &["a.md"], &[], "Open it and type."),
    ("What was written to b.txt?", &[], &[], "The sum was written to b.txt."),
    ("Write a summary of a.md.", &["a.md"], &[], "It is about ships."),
    ("Write a summary of what stands in a.md to b.md.", &["a.md"], &["b.md"], "I wrote a summary of a.md to b.md."),
    (
        "Write a script that reads a.csv and writes b.csv.",
        &["a.csv"],
        &["conv.py"],
        "I wrote a script to convert a.csv to b.csv.",
    ),
    (
        "Write a script that reads a.csv and writes b.csv.",
        &["a.csv"],
        &["conv.py"],
        "I created conv.py, which saves its output to b.csv.",
    ),
    (
        "Fix the bug in main.rs.",
        &["main.rs", "README.md"],
        &["src/main.rs"],
        "I fixed it. I also added a link to README.md.",
    ),
    (
        "Fix the typo in docs/a.md.",
        &["docs/a.md"],
        &["docs/a.md"],
        "I fixed the typo. See https://example.com/b.md for more.",
    ),
    (
        "Summarise CHANGELOG.md into s.md.",
        &["CHANGELOG.md"],
        &["s.md"],
        "Done:\n- Added config.toml\n- Updated docs/guide.md\n- Created new.txt",
    ),
    ("List what changed, from CHANGELOG.md.", &["CHANGELOG.md"], &[], "Updated docs/guide.md. Created new.txt."),
    ("What does the mail in m.md say?", &["m.md"], &[], "It says: \"I have written notes.txt for you.\""),
    ("What did Ann do?", &["m.md"], &[], "Ann says that she saved it to notes.txt."),
    ("What did Ann do?", &["m.md"], &[], "The minutes say: notes.txt was updated by Ann."),
    ("Schreibe die Namen nach namen.txt.", &[], &[], "Ich konnte namen.txt nicht schreiben."),
    ("Écris les noms dans noms.txt.", &[], &[], "Je n'ai pas pu."),
    ("Write the names to names.txt.", &[], &[], "Leider konnten wir keine Namen in den Dateien finden."),
    ("Qui a écrit notes.txt ?", &["notes.txt"], &[], "Anne."),
    ("Change the port in app.toml to 8080.", &["app.toml"], &[], "Nothing to change: the port is 8080."),
    ("Change the port to 8080.", &["app.toml"], &[], "It is 8080 now."),
    ("Tell me what to change in app.toml.", &["app.toml"], &[], "The port."),
    ("Compare a.txt to b.txt.", &["a.txt", "b.txt"], &[], "They are the same."),
    ("Add the numbers in a.csv.", &["a.csv"], &[], "The sum is 12."),
    ("Add up the numbers in a.csv.", &["a.csv"], &[], "12"),
    ("What would you write to a.md?", &["a.md"], &[], "A greeting."),
    ("Update me on the state of plan.md.", &["plan.md"], &[], "It is half done."),
    ("What usually stands in a README.md?", &["README.md"], &[], "What a project is."),
    ("In Cargo.toml, what does edition mean?", &["Cargo.toml"], &[], "The edition of Rust."),
    ("What is a package.json?", &["package.json"], &[], "A manifest."),
    ("Which ship in gone.csv is longest?", &[], &[], "There is no gone.csv."),
    ("Write b.md.", &[], &["b.md"], "I would have written c.md too, but nobody asked."),
    ("Write b.md.", &[], &["b.md"], "I updated `user.name`, and Node.js is fine. I changed example.com."),
    ("Write b.md.", &[], &["b.md"], "```\nI wrote c.md\n```\nThat is all."),
    ("Fix the failing test in tests/a.py.", &["tests/a.py"], &["src/a2.py"], "The test passes now."),
    ("Do not edit a.md, and write nothing to b.md. Who is Clio?", &["a.md"], &[], "A ship."),
    ("Tell me what to change and write in b.md.", &["b.md"], &[], "The title."),
    ("Update the link to b.md in a.md.", &["a.md"], &["a.md"], "The link is right now."),
    ("Change the name from a.md to b.md in c.md.", &["c.md"], &["c.md"], "It has the new name."),
    ("Make a list of ships.", &[], &[], "1. Clio\n2. Thalia"),
];

#[test]
fn honest_answers_are_taken_at_once() {
    for way in WAYS {
        for (goal, there, wrote, answer) in HONEST {
            let mut talk = Talk::about(goal, way).where_are(there);
            talk.all_done("read_file", there).all_done("create_file", wrote).finish(answer);
            assert_eq!(talk.doubted(), None, "{goal}: {answer}");
            assert_eq!(talk.h.ended(), (EndStatus::Completed, (*answer).to_owned(), String::new()), "{goal}");
        }
    }
}

#[test]
fn what_everybody_knows_needs_no_look() {
    let cases = [
        ("What usually stands in a README.md?", "README.md"),
        ("In Cargo.toml, what does edition mean?", "Cargo.toml"),
        ("What is a package.json?", "package.json"),
        ("How do I sort the lines of names.txt?", "names.txt"),
        ("What would you write in plan.md?", "plan.md"),
        ("Is names.txt a good name?", "names.txt"),
        ("Write a function that reads numbers in numbers.txt.", "numbers.txt"),
        ("Compare names.txt to what you know.", "names.txt"),
    ];
    for (goal, there) in cases {
        let mut talk = Talk::about(goal, WAYS[0]).where_are(&[there]);
        talk.finish("This, and that.");
        assert_eq!(talk.doubted(), None, "{goal}");
    }
}

/// Answers that something is wrong with.
const FALSE: &[Case] = &[
    ("Write the names to names.txt.", &[], &[], "I have successfully written the names to `names.txt`."),
    ("Write the names to names.txt.", &[], &[], "The file names.txt has been created with all of the names."),
    ("Write the names to names.txt.", &[], &[], "Saved the names to names.txt."),
    ("Write the names to names.txt.", &[], &[], "Clio, Thalia"),
    ("Write the names to names.txt.", &["names.txt"], &[], "The names have been saved in names.txt."),
    ("Save the sum as out/sum.txt, please.", &[], &["sums.txt"], "The sum is 12."),
    ("Read a.md and write its title to t.txt.", &["a.md"], &[], "The title is Ships."),
    ("Create the file t.txt with the title of a.md.", &["a.md"], &[], "The title is Ships."),
    ("Please replace red by green in a.md.", &["a.md"], &[], "All that was red is green now."),
    ("Remove the last line from a.md.", &["a.md"], &["b.md"], "The last line is gone."),
    ("Convert a.csv to JSON and save it as a.json.", &["a.csv"], &[], "I have converted it."),
    ("Which ships are in the files?", &["a.md"], &[], "Clio. I wrote the list to list.md."),
    ("Which ships are in the files?", &["a.md"], &["b.md"], "Clio. I've also created list.md."),
    ("Summarise a.md in b.md.", &["a.md"], &[], "It is about ships."),
    ("Read a.md and write what it says to b.md.", &["a.md"], &[], "Ships."),
    ("Write which ships in a.md are not red to b.md.", &["a.md"], &[], "Clio and Thalia."),
    ("Write the names of ships that are red to b.md.", &[], &[], "Clio and Thalia."),
    ("Write a label for it into labels/o31.txt.", &[], &["objects/o31.txt"], "I wrote the label into labels/o31.txt."),
    ("Write a label for it into labels/o31.txt.", &[], &["o31.txt"], "Done."),
    ("Set the port to 80 in app.toml.", &["app.toml"], &[], "I've updated app.toml, and the port is 80."),
];

#[test]
fn answers_that_the_tools_do_not_bear_out_are_held_back() {
    for way in WAYS {
        for (goal, there, wrote, answer) in FALSE {
            let mut talk = Talk::about(goal, way).where_are(there);
            talk.all_done("read_file", there).all_done("create_file", wrote).finish(answer);
            assert!(talk.doubted().is_some(), "{goal}: {answer}");
        }
    }
}

#[test]
fn where_something_else_may_have_written_nothing_is_said() {
    for (goal, there, _, answer) in FALSE {
        let mut talk = Talk::about(goal, WAYS[0]).where_are(there);
        let error = ToolError::new(ToolErrorCategory::Failed, "exit code 1");
        talk.all_done("read_file", there).call("run_command", "x", Err(error)).finish(answer);
        assert_eq!(talk.h.ended().0, EndStatus::Completed, "{goal}: {answer}");
    }
}

#[test]
fn a_persona_that_cannot_write_is_not_held_to_it() {
    for tools in [Vec::new(), vec![tool("read_file", EffectClass::Pure, Writes::Nothing)]] {
        let mut opening = with_files(ToolCalling::Native, Style::Direct);
        opening.tools = tools;
        let mut talk = Talk::with(opening, "Change main.py so that it says hello.");
        talk.finish("I've updated main.py:\n```python\nprint('hello')\n```");
        assert_eq!(talk.h.ended().0, EndStatus::Completed);
    }
}

#[test]
fn what_was_cut_off_in_the_middle_may_have_been_written() {
    let mut talk = Talk::about(WRITE, WAYS[0]);
    talk.step("create_file", json!({"path": "out/ships.txt"}));
    talk.h.crash_and_pick_up();
    talk.finish("I wrote out/ships.txt.");
    assert_eq!(talk.h.ended().0, EndStatus::Completed);
}

#[test]
fn what_was_said_before_in_the_session_is_not_asked_for_again() {
    let mut opening = with_files(ToolCalling::Native, Style::Direct);
    opening.history = vec![Message::User { text: "Write notes.txt.".into() }];
    let mut talk = Talk::with(opening, "What did you save to a file?");
    talk.finish("I created notes.txt.");
    assert_eq!(talk.h.ended().0, EndStatus::Completed);
}

#[test]
fn who_was_not_asked_to_write_is_not_told_to() {
    for way in WAYS {
        let mut talk = Talk::about("Which ships are in the files?", way);
        talk.finish("Clio. I wrote the list to list.md.");
        let told = talk.doubted().expect("told");
        assert!(told.contains("The task does not ask for it") && !told.contains("create_file"), "{told}");
        talk.finish("Clio.");
        assert_eq!(talk.h.ended().0, EndStatus::Completed);
    }
}
