//! How what is shown reads: a run line by line, texts and tables at the width there is, prices.

use crate::support::{ModelServer, Project, Say};
use serde_json::json;

/// What a command shows where there are so many columns.
fn at(project: &Project, columns: usize, args: &[&str]) -> String {
    let ended = project.command(args).env("COLUMNS", columns.to_string()).output().expect("ran");
    String::from_utf8(ended.stdout).expect("UTF-8")
}

fn use_model(project: &Project, base_url: &str, more: &str) {
    let model = format!("base_url = \"{base_url}\"\nmodel = \"mock\"\n{more}\n");
    project.write("config/posse.toml", format!("grace_seconds = 0\n[models.mock]\n{model}"));
}

fn done() -> Say {
    Say::Call("finish", json!({"final_summary": "Done."}))
}

/// A text with how long each thing took left out.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| ["<1", "ms"].contains(&word) || word.parse::<u32>().is_ok();
    let lines = text.lines().map(|line| match line.rsplit_once(", ") {
        Some((line, time)) if time.split(' ').all(is_time) => line.to_owned(),
        _ => line.split("  ").filter(|part| !part.contains("out tokens")).collect::<Vec<_>>().join("  "),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_structured_step_shows_its_thinking_and_not_its_json() {
    let server = ModelServer::start(vec![
        Say::Call("read_file", json!({"path": "a.md"})),
        Say::Call("annotate", json!({"text": "odd", "tags": ["finding"]})),
        done(),
    ]);
    let project = Project::begun();
    use_model(&project, &server.base_url, "tool_calling = \"structured\"");
    project.write("a.md", "one\n\ntwo\u{1b}[2J\nthree\nfour\nfive\nsix\n");
    project.posse(&["run", "--role", "researcher", "x"]).ok();
    let shown = without_times(&at(&project, 60, &["job", "replay", "1"]));
    let wanted = "
  ▸  model mock (structured tool calls), tools: annotate, c…
  1  I look.
     → read_file path=\"a.md\"
     ← read_file  7 lines, 33 B
       one
       two␛[2J
       three
       four
       … 2 more lines
  2  I look.
     → annotate text=\"odd\" tags=[\"finding\"]
     ← annotate  1 line, 28 B
       Saved with the tags finding.
  ✎  odd [finding]
  3  I look.
";
    assert!(shown.contains(wanted), "{shown}");
}

#[test]
fn long_things_are_cut_unless_all_is_asked_for_and_failures_are_told_by_their_kind() {
    let server = ModelServer::start(vec![
        Say::Call("create_file", json!({"path": "long.txt", "content": "word ".repeat(100)})),
        Say::Call("read_file", json!({"path": "none.md"})),
        Say::Call("rm", json!({})),
        done(),
    ]);
    let project = Project::begun();
    use_model(&project, &server.base_url, "tool_calling = \"native\"");
    project.posse(&["run", "--role", "scribe", "x"]).ok();
    let shown = at(&project, 60, &["job", "replay", "1"]);
    assert!(shown.lines().all(|line| unicode_width::UnicodeWidthStr::width(line) <= 60), "{shown}");
    assert!(shown.contains("     → create_file path=\"long.txt\" content=\"word word word…\n"), "{shown}");
    assert_eq!(at(&project, 60, &["job", "replay", "1", "--full"]).matches("word").count(), 100);
    assert!(shown.contains("     ✗ read_file: not found ") && shown.contains("       no such file or"), "{shown}");
    assert!(shown.contains("     ✗ rm was not run\n       There is no tool 'rm'."), "{shown}");
}

#[test]
fn why_a_model_gave_no_answer_is_told_once() {
    let project = Project::begun();
    use_model(&project, "http://127.0.0.1:1/v1", "retries = 0");
    project.posse(&["run", "--role", "scribe", "x"]).expect(1);
    let shown = project.posse(&["job", "show", "1"]).ok().out;
    let (_, run) = shown.split_once("\n\n").expect("a head and a run");
    assert!(run.contains("  ✗  the model gave no answer (") && run.matches("127.0.0.1:1/v1").count() == 1, "{run}");
    let end = run.lines().find(|line| line.starts_with("  ✗  attempt 1 failed")).expect("its end");
    assert!(end.starts_with("  ✗  attempt 1 failed; next attempt in "), "{end}");
}

#[test]
fn prices_are_told_as_people_read_them() {
    let server = ModelServer::start(vec![done()]);
    let mut project = Project::begun();
    for (price, told) in
        [("12", "$0.0012"), ("0.03", "$0.000003"), ("25000", "$2.50"), ("0", "free"), ("", "cost unknown")]
    {
        let prices = if price.is_empty() { "" } else { &format!("price_input = {price}\nprice_output = 0") };
        use_model(&project, &server.base_url, prices);
        let run = project.posse(&["run", "--role", "scribe", "x"]).ok().out;
        assert!(run.contains(&format!(" · 100 in + 10 out tokens · {told} · ")), "{price}: {run}");
    }
    // What runs on this machine costs nothing, whoever says nothing of a price.
    std::fs::remove_file(project.path().join("config/posse.toml")).expect("removed");
    let here = server.base_url.trim_end_matches("/v1").to_owned();
    project.set("OLLAMA_HOST", &here);
    let run = project.posse(&["run", "--role", "scribe", "x"]).ok().out;
    assert!(run.contains(" · free (local) · "), "{run}");
}

#[test]
fn texts_fit_the_width_there_is() {
    let project = Project::begun();
    let goal = "one two three four\n\n  five six seven\nabcdefghijklmn";
    let (unique, key) = ("one two three four five", "日本語日本語日本語日本語日本語");
    project.posse(&["enqueue", "--role", "scribe", "--unique", unique, "--concurrency-key", key, goal]).ok();
    let shown = at(&project, 24, &["show", "1"]);
    let wanted = "
  goal       one two
             three four
             
               five six
               seven
             abcdefghij
             klmn
";
    assert!(shown.contains(wanted), "{shown}");
    // Words are kept whole where that can be, and what has no spaces is broken where it must be.
    let wanted = "
  unique     one two
            three four
            five
  key日本語日本語日本語
            日本語日本語
";
    assert!(shown.contains(wanted), "{shown}");
    // Colours take no room.
    let painted = at(&project, 24, &["show", "1", "--color", "always"]);
    let wanted = "\u{1b}[2munique    \u{1b}[0m one two\n            three four\n            five\n";
    assert!(painted.contains(wanted), "{painted:?}");
    project.posse(&["enqueue", "--role", "scribe", &"word ".repeat(1000)]).ok();
    let long = at(&project, 60, &["show", "2"]);
    assert!(long.contains("\n             … (5.0 kB in all; --full shows them)\n"), "{long}");
}

#[test]
fn columns_line_up_and_what_does_not_fit_is_cut_or_stands_in_blocks() {
    let project = Project::begun();
    let enqueue = |args: &[&str]| project.posse(&[&["enqueue", "--role", "scribe"], args].concat()).ok();
    enqueue(&["--group", "ok", "x"]);
    enqueue(&["--group", "日本", "x"]);
    (0..3).for_each(|_| drop(enqueue(&["--group", "日本", "--delay", "1h", "x"])));
    let lines =
        ["GROUP  JOBS  ENDED  STATES", "ok     1     0 %    1 available", "日本   4     0 %    3 scheduled, 1 avai…"];
    assert_eq!(at(&project, 40, &["group", "list"]).lines().collect::<Vec<_>>(), lines);
    let blocks = "GROUP   ok\nJOBS    1\nENDED   0 %\nSTATES  1 available\n\n\
        GROUP   日本\nJOBS    4\nENDED   0 %\nSTATES  3 scheduled, 1\n        available\n";
    assert_eq!(at(&project, 30, &["group", "list"]), blocks);
    let painted = at(&project, 80, &["persona", "list", "--color", "always"]);
    let row = painted.lines().find(|line| line.contains("scribe")).expect("a row");
    assert!(row.starts_with("\u{1b}[36mscribe\u{1b}[0m       default  24     Write or change"), "{row:?}");
    assert!(row.ends_with('…'), "{row:?}");
}
