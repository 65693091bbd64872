//! `query_tables`: which tables the files make, what SQL over them gives, and that it reaches nothing else.

use std::fs;

use posse_core::stop::{StopReason, stop_pair};
use posse_core::tool::{ToolError, ToolErrorCategory};
use serde_json::json;

use super::support::{Bench, SECRET};

fn ask(bench: &Bench, sql: &str) -> Result<String, ToolError> {
    bench.call("query_tables", json!({"sql": sql}))
}

fn answer(bench: &Bench, sql: &str) -> String {
    ask(bench, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn farm() -> Bench {
    let bench = Bench::new();
    bench.write(
        "milk.csv",
        "day,cow,litres,from\n2026-05-01,Elsa,21.5,barn\n2026-05-01,Rosa,18.25,field\n2026-05-02,Elsa,20,barn\n",
    );
    bench.write("cows/elsa.md", "# Elsa\n\n- **Born:** 2019-03-02\n- Weight: 612 kg\n- Vet: Dr Bauer\n- Horns: none\n");
    bench.write("cows/rosa.md", "# Rosa\n\n- Born: 2021-07-19\n- Weight: 1,040 kg\n- Vet: Dr Ito\nLikes: rain\n");
    bench.write(
        "stalls.md",
        "# Stalls\n\n| no. | cow | order |\n|----|:--:|---|\n| 1 | Elsa | 2 |\n| 2 | Rosa | 1 |\n\nThe end.\n",
    );
    bench.write(
        "feed.json",
        r#"{"year": 2026, "feeds": [{"kind": "hay", "euros": 12.5, "tags": ["dry"]}, {"kind": "oats"}]}"#,
    );
    bench.write("log.txt", "INFO begun\nERROR no water\nINFO over\nERROR no light\n");
    bench
}

#[test]
fn each_kind_of_table_is_counted_added_up_and_sorted() {
    let bench = farm();
    for (sql, wanted) in [
        ("SELECT sum(litres) FROM milk WHERE cow = 'elsa'", "sum(litres) = 41.5"),
        ("SELECT name FROM cows ORDER BY weight DESC LIMIT 1;", "name = Rosa"),
        (
            "select name, weight, file from cows where vet like '%ito'",
            "1 row, name | weight | file:\nRosa | 1040 | cows/rosa.md",
        ),
        ("SELECT cow FROM stalls ORDER BY order_", "2 rows, cow:\nRosa\nElsa"),
        ("SELECT kind, euros, tags FROM feed", "2 rows, kind | euros | tags:\nhay | 12.5 | [\"dry\"]\noats |  | "),
        ("SELECT count(*) FROM lines WHERE file = 'log.txt' AND line LIKE '%error%'", "count(*) = 2"),
        (
            "WITH a AS (SELECT from_ f, avg(litres) l FROM milk GROUP BY 1) SELECT f, l FROM a",
            "2 rows, f | l:\nbarn | 20.75\nfield | 18.25",
        ),
        (
            "SELECT m.cow, vet FROM milk m JOIN cows ON m.cow = name WHERE litres = 20",
            "1 row, cow | vet:\nElsa | Dr Bauer",
        ),
        ("SELECT 0.1 + 0.2 AS x", "x = 0.3"),
    ] {
        assert_eq!(answer(&bench, sql), wanted, "{sql}");
    }
}

#[test]
fn where_no_row_fits_those_are_told_that_have_a_part_of_what_was_asked() {
    let bench = farm();
    let near = ". These rows of it have a text of the query; LIKE '%…%' finds a part of one:\n\
                name = Elsa, born = 2019-03-02, weight = 612, vet = Dr Bauer, file = cows/elsa.md";
    for (sql, said) in [
        ("SELECT name FROM cows WHERE vet = 'bauer'", "no row fits"),
        ("SELECT count(*) FROM cows WHERE vet = 'Bauer'", "count(*) = 0"),
        ("SELECT max(weight) FROM cows WHERE vet LIKE 'bauer%'", "max(weight) = nothing (no row fits)"),
    ] {
        assert_eq!(answer(&bench, sql), format!("{said}{near}"), "{sql}");
    }
}

#[test]
fn where_no_row_is_near_other_files_are_told_or_what_the_rows_are_like() {
    let bench = farm();
    let elsewhere = "no row fits. Other files have a text of the query:\nlog.txt: ERROR no water";
    assert_eq!(answer(&bench, "SELECT cow FROM milk WHERE from_ = 'no water'"), elsewhere);
    assert_eq!(answer(&bench, "SELECT cow FROM milk WHERE from_ LIKE '%running water%'"), elsewhere, "by a word of it");
    let like = ". Its rows are like these:\n\
                kind = hay, euros = 12.5, tags = [\"dry\"]\n\
                kind = oats, euros = , tags = ";
    for (sql, said) in [
        ("SELECT kind FROM feed WHERE kind = 'Cohen' OR kind = ''", "no row fits"),
        ("SELECT kind FROM feed WHERE euros > 5000", "no row fits"),
        ("SELECT max(euros) FROM feed WHERE kind = 'corn'", "max(euros) = nothing (no row fits)"),
    ] {
        assert_eq!(answer(&bench, sql), format!("{said}{like}"), "{sql}");
    }
    assert_eq!(answer(&bench, "SELECT 1 WHERE 0"), "no row fits");
}

#[test]
fn a_query_that_cannot_be_run_is_told_what_the_files_say() {
    let bench = farm();
    let told = |sql: &str| ask(&bench, sql).expect_err(sql).to_string();
    let near =
        ". What the files say of it:\nname = Rosa, born = 2021-07-19, weight = 1040, vet = Dr Ito, file = cows/rosa.md";
    let error = told("SELECT stall FROM cows WHERE vet = 'ito'");
    assert!(error.contains("no such column: stall. The tables are: ") && error.ends_with(near), "{error}");
    let error = told("SELECT value FROM log WHERE name = 'no light'");
    assert!(error.ends_with(". What the files say of it:\nlog.txt: ERROR no light"), "{error}");
    assert!(told("SELECT value FROM log").ends_with("or read the files"));
}

#[test]
fn a_file_may_be_named_by_its_path() {
    let bench = farm();
    bench.write("old/milk.csv", "day,litres\nMonday,1\n");
    for from in ["milk", "milk.csv", "'milk.csv'", "\"milk.csv\"", "`milk.csv`"] {
        assert_eq!(answer(&bench, &format!("SELECT count(*) FROM {from} WHERE cow = 'Elsa'")), "count(*) = 2");
    }
    assert_eq!(answer(&bench, "SELECT sum(litres) FROM \"old/milk.csv\""), "sum(litres) = 1");
    for from in ["milk_2", "old/milk", "old/milk.csv WHERE 1"] {
        assert_eq!(answer(&bench, &format!("SELECT sum(litres) FROM {from}")), "sum(litres) = 1");
    }
}

#[test]
fn the_survey_tells_of_the_tables_with_their_units() {
    let bench = farm();
    bench.write("long.csv", format!("a,b\n{}", "1,2\n".repeat(10_000)));
    let told: Vec<_> = bench
        .survey()
        .tables
        .into_iter()
        .map(|table| (table.name, table.path, table.columns.join(","), table.rows))
        .collect();
    let table =
        |name: &str, path: &str, columns: &str, rows| (name.to_owned(), path.to_owned(), columns.to_owned(), rows);
    assert_eq!(
        told,
        [
            table("feed", "feed.json", "kind,euros,tags", Some(2)),
            table("long", "long.csv", "a,b", None),
            table("milk", "milk.csv", "day,cow,litres,from_", Some(3)),
            table("stalls", "stalls.md", "no,cow,order_", Some(2)),
            table("cows", "cows/", "name,born,weight in kg,vet,file", Some(2)),
        ]
    );
    assert_eq!(answer(&bench, "SELECT count(*) FROM long"), "count(*) = 10000", "a query reads it to its end");
}

#[test]
fn what_looks_like_a_number_and_is_none_stays_as_it_is() {
    let bench = Bench::new();
    bench.write("p.csv", "name;phone;size;price;at\nA;0301;3 m;€ 1,200.50;08:00\nB;0302;40 cm;€ 3;9:30\nC;;;n/a;\n");
    assert_eq!(
        answer(&bench, "SELECT * FROM p"),
        "3 rows, name | phone | size | price | at:\nA | 0301 | 3 m | 1200.5 | 08:00\nB | 0302 | 40 cm | 3 | 9:30\nC |  |  |  | "
    );
}

#[test]
fn a_wrong_query_is_told_what_there_is() {
    let bench = farm();
    let error = ask(&bench, "SELECT x FROM cow").unwrap_err();
    assert_eq!(error.category, ToolErrorCategory::NotFound);
    for part in [
        "no such table: cow",
        "milk(day, cow, litres, from_)",
        "cows(name, born, weight, vet, file)",
        "lines(file, number, line)",
    ] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    let error = ask(&bench, "SELECT breed FROM cows").unwrap_err();
    assert!(error.message.contains("no such column: breed"), "{error}");
    assert!(ask(&bench, &"x".repeat(10_001)).unwrap_err().message.contains("may have 10000"));
}

#[test]
fn a_query_changes_nothing_and_reaches_nothing_else() {
    let bench = farm();
    bench.write("links.csv", "a,b\n1,2\n");
    std::os::unix::fs::symlink(bench.base().join("ws-evil/secret.txt"), bench.ws("secret.csv")).unwrap();
    let before = bench.tree();
    let outside = bench.base().join("out.db");
    for sql in [
        "DELETE FROM milk".to_owned(),
        "DROP TABLE milk".into(),
        "WITH a AS (SELECT 1) INSERT INTO milk VALUES (1, 2, 3, 4)".into(),
        format!("ATTACH '{}' AS x", outside.display()),
        format!("VACUUM INTO '{}'", outside.display()),
        "PRAGMA temp_store_directory = '/tmp'".into(),
        "SELECT load_extension('/tmp/x.so')".into(),
        "SELECT readfile('/etc/passwd')".into(),
        "SELECT writefile('x', 'y')".into(),
        "SELECT 1; DELETE FROM milk".into(),
    ] {
        let error = ask(&bench, &sql).expect_err(&sql);
        assert!(
            matches!(error.category, ToolErrorCategory::InvalidArguments | ToolErrorCategory::NotFound),
            "{sql}: {error}"
        );
    }
    assert!(!answer(&bench, "SELECT file, line FROM lines").contains(SECRET));
    assert_eq!(bench.tree(), before);
    assert!(!fs::exists(outside).unwrap());
}

#[test]
fn a_query_that_never_ends_and_one_that_is_stopped_end() {
    let (stopper, stop) = stop_pair();
    let bench = Bench::stopped_by(stop);
    bench.write("a.csv", "a,b\n1,2\n");
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let error = ask(&bench, endless).unwrap_err();
    assert_eq!(error.category, ToolErrorCategory::LimitExceeded, "{error}");
    let too_long = ask(&bench, "SELECT printf('%2000000d', 1)").unwrap_err();
    assert!(too_long.message.contains("too big"), "{too_long}");
    stopper.stop(StopReason::Cancelled);
    assert_eq!(ask(&bench, "SELECT 1").unwrap_err().category, ToolErrorCategory::Stopped);
}

#[test]
fn much_is_shown_in_part() {
    let bench = Bench::new();
    bench.write(
        "n.csv",
        format!("n,text\n{}", (0..1000).map(|n| format!("{n},{}\n", "x".repeat(50))).collect::<String>()),
    );
    let shown = answer(&bench, "SELECT n FROM n");
    assert!(
        shown.starts_with("1,000 rows, n:\n0\n1\n") && shown.ends_with("(800 more; ask for fewer with WHERE or LIMIT)"),
        "{shown}"
    );
    assert!(answer(&bench, "SELECT * FROM n, n m").len() < 32 * 1024);
}

#[test]
fn what_was_not_read_to_its_end_is_not_counted_in_silence() {
    let bench = Bench::new();
    bench.write("short.txt", "one\ntwo\n");
    assert_eq!(answer(&bench, "SELECT count(*) FROM lines"), "count(*) = 2");
    bench.write("wide.txt", format!("{}\n", "x".repeat((1 << 20) - 1)).repeat(17));
    let shown = answer(&bench, "SELECT count(*) FROM lines");
    assert_eq!(shown, "count(*) = 18\n(not all texts were read to their end: lines lacks some)");
}
