//! A worker that runs out of open files, at each place of each tool where one is opened.

use std::fs::File;
use std::process::Command;

use posse_core::tool::ToolErrorCategory::WorkerUnfit;
use posse_infra::sqlite::{Options, SqliteStore};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::support::{Bench, SECRET};

const NAME: &str = "tool_files::lack::what_a_worker_lacks_is_never_a_tools_result";

/// More than any tool has open at once.
const MOST: usize = 40;

/// The limit holds for a whole process, so the test has one of its own.
#[test]
fn what_a_worker_lacks_is_never_a_tools_result() {
    const CHILD: &str = "POSSE_TEST_FEW_FILES";
    if std::env::var_os(CHILD).is_some() {
        return with_few_files();
    }
    let this = std::env::current_exe().unwrap();
    let ran = Command::new(this).args([NAME, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}

fn with_few_files() {
    let mut bench = Bench::new();
    bench.rules_file = Some("AGENTS.md".into());
    bench.skill = Some(bench.ws("a"));
    for (file, text) in [("AGENTS.md", "rules"), ("a/b/notes.txt", "one needle\n"), ("a/c.txt", "needle\n")] {
        bench.write(file, text);
    }
    // Somebody's database, what belongs to it by its name, and another name of what is hidden.
    let elsewhere = bench.base().join("elsewhere");
    drop(SqliteStore::open(&elsewhere, Options::default()).unwrap());
    bench.write("d/other.txt", "needle");
    std::fs::copy(elsewhere, bench.ws("d/theirs")).unwrap();
    bench.write("d/theirs.part", format!("{SECRET} needle"));
    bench.write("keys/key", format!("{SECRET} needle"));
    std::fs::hard_link(bench.ws("keys/key"), bench.ws("a/link")).unwrap();
    bench.protected.hidden = vec![bench.ws("keys")];
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..limits }).unwrap();
    let call = |tool: &str, args: &Value, left: usize| {
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.truncate(taken.len() - left);
        bench.call(tool, args.clone())
    };
    for (tool, args) in [
        ("read_file", json!({"path": "a/b/notes.txt"})),
        ("read_file", json!({"path": "a/none.txt"})),
        ("read_skill_file", json!({"path": "b/notes.txt"})),
        ("read_file", json!({"path": "d/theirs.part"})),
        ("read_file", json!({"path": "a/link"})),
        ("create_file", json!({"path": "d/theirs", "content": "x", "overwrite": true})),
        ("list_files", json!({"recursive": true})),
        ("search_files", json!({"pattern": "needle"})),
        ("create_file", json!({"path": "a/c.txt", "content": "x"})),
        ("create_file", json!({"path": "AGENTS.md", "content": "x", "overwrite": true})),
        ("edit_file", json!({"path": "a/none.txt", "old_text": "x", "new_text": "y"})),
    ] {
        let told = call(tool, &args, MOST);
        assert!(!matches!(&told, Err(error) if error.category == WorkerUnfit), "{tool}: {told:?}");
        let shown = told.as_deref().unwrap_or_default();
        assert!(!shown.contains("theirs.part") && !shown.contains(SECRET), "{shown}");
        let lacked = (0..MOST).filter(|left| match call(tool, &args, *left) {
            Err(error) if error.category == WorkerUnfit => {
                assert!(error.message.contains("ulimit -n") || error.message.contains("open files"), "{error}");
                true
            }
            other => {
                assert_eq!(other, told, "{tool} {args} with {left} left");
                false
            }
        });
        assert!((1..MOST).contains(&lacked.count()), "{tool} {args}");
    }
    for path in ["a/b/notes.txt", "new/folder/list.txt"] {
        let before = std::fs::read_to_string(bench.ws(path)).unwrap_or_default();
        let mut want = before.clone();
        for left in 0..MOST {
            match call("append_file", &json!({"path": path, "text": left.to_string()}), left) {
                Ok(_) => want += &format!("{left}\n"),
                Err(error) => assert_eq!(error.category, WorkerUnfit, "{path} with {left} left: {error}"),
            }
            assert_eq!(std::fs::read_to_string(bench.ws(path)).unwrap_or_default(), want, "{path} with {left} left");
        }
        assert!(want.len() > before.len() && !want.contains("\n0\n"), "{want}");
    }
}
