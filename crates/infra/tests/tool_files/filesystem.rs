//! The file tools in use, and on files that have broken others: endless, huge, binary, gone.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::support::Bench;
use posse_core::stop::{StopReason, stop_pair};
use posse_core::tool::ToolErrorCategory::*;
use serde_json::json;

impl Bench {
    fn read(&self, path: &str) -> String {
        self.call("read_file", json!({"path": path})).unwrap()
    }

    fn lines(&self, path: &str, first: u64, last: u64) -> String {
        self.call("read_file", json!({"path": path, "start_line": first, "end_line": last})).unwrap()
    }
}

#[test]
fn a_file_is_created_read_edited_and_appended_to() {
    let bench = Bench::new();
    let create = |args| bench.call("create_file", args);
    assert_eq!(create(json!({"path": "a/b/c.txt", "content": "one\n"})).unwrap(), "'a/b/c.txt' was written (4 bytes)");
    let error = create(json!({"path": "a/b/c.txt", "content": "x"})).unwrap_err();
    assert_eq!(error.category, Conflict);
    assert!(error.message.contains("overwrite=true"), "{error}");
    bench.call("append_file", json!({"path": "a/b/c.txt", "text": "two"})).unwrap();
    bench.call("edit_file", json!({"path": "a/b/c.txt", "old_text": "one", "new_text": "1"})).unwrap();
    assert_eq!(bench.read("a/b/c.txt"), "1\ntwo\n");
    create(json!({"path": "a/b/c.txt", "content": "new", "overwrite": true})).unwrap();
    create(json!({"path": "fresh", "content": "", "overwrite": true})).unwrap();
    assert_eq!((bench.read("a/b/c.txt"), bench.read("fresh")), ("new".into(), "(empty file)".into()));
    let error = bench.call("edit_file", json!({"path": "a/b/C.txt", "old_text": "x", "new_text": "y"})).unwrap_err();
    assert_eq!(error.category, NotFound);
    assert!(error.message.contains("Did you mean 'a/b/c.txt'?"), "{error}");
    let error = create(json!({"path": "a/b/c.txt/d", "content": "x"})).unwrap_err();
    assert!(error.message.contains("is a file where a folder is needed"), "{error}");
}

#[test]
fn a_refused_write_makes_no_folder() {
    let bench = Bench::new();
    let before = bench.tree();
    let long = "x".repeat((1 << 20) + 1);
    for (tool, args) in [
        ("create_file", json!({"path": "new/big", "content": long})),
        ("append_file", json!({"path": "new/big", "text": long})),
        ("create_file", json!({"path": "new/folder/", "content": "x"})),
        ("create_file", json!({"path": "new/.", "content": "x"})),
        ("create_file", json!({"path": "new/../x/..", "content": "x"})),
        ("edit_file", json!({"path": "new/x", "old_text": "a", "new_text": "b"})),
    ] {
        let error = bench.call(tool, args).unwrap_err();
        assert!(before == bench.tree(), "{tool}: {error}");
    }
}

#[test]
fn lines_are_counted_and_ranges_are_labelled() {
    let bench = Bench::new();
    bench.write("f", "1\n2\n3\n4");
    assert_eq!(bench.read("f"), "1\n2\n3\n4");
    assert_eq!(bench.lines("f", 2, 3), "[f, lines 2 to 3 of 4]\n2\n3\n");
    assert_eq!(bench.lines("f", 4, 9), "[f, line 4 of 4]\n4");
    let error = bench.call("read_file", json!({"path": "f", "start_line": 5})).unwrap_err();
    assert!(error.message.contains("has only 4 lines"), "{error}");
    let error = bench.call("read_file", json!({"path": "f", "start_line": 3, "end_line": 2})).unwrap_err();
    assert_eq!(error.category, InvalidArguments);
    assert!(bench.call("read_file", json!({"path": "f", "start_line": 0})).is_err());
}

#[test]
fn of_a_long_file_the_head_is_shown_and_the_way_to_the_rest() {
    let bench = Bench::new();
    let text: String = (1..=10_000).map(|n| format!("line {n}\n")).collect();
    bench.write("long", &text);
    let (mut whole, mut next, mut calls) = (String::new(), Some(1), 0);
    while let Some(line) = next {
        let shown = bench.call("read_file", json!({"path": "long", "start_line": line})).unwrap();
        assert!(shown.len() < 33 * 1024);
        let (label, rest) = shown.split_once('\n').unwrap();
        assert!(label.contains("of 10000"), "{label}");
        next = label.split_once("start_line ").map(|(_, n)| n.trim_end_matches(']').parse().unwrap());
        whole.push_str(rest);
        calls += 1;
    }
    assert!(whole == text && calls > 2, "{calls}");
    assert!(bench.read("long").starts_with("[long, lines 1 to "));
}

#[test]
fn special_files_are_refused_by_their_type() {
    let bench = Bench::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.ws("p"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = UnixListener::bind(bench.ws("s")).unwrap();
    symlink("/dev/zero", bench.ws("zero")).unwrap();
    bench.write("t.txt", "text");
    for (path, words) in [("p", "is a FIFO"), ("s", "is a socket"), ("zero", "")] {
        for (tool, args) in [
            ("read_file", json!({"path": path})),
            ("read_file", json!({"path": path, "start_line": 5})),
            ("search_files", json!({"path": path, "pattern": "x"})),
            ("list_files", json!({"path": path})),
            ("edit_file", json!({"path": path, "old_text": "x", "new_text": "y"})),
            ("append_file", json!({"path": path, "text": "x"})),
            ("create_file", json!({"path": path, "content": "x", "overwrite": true})),
        ] {
            let error = bench.call(tool, args).unwrap_err();
            assert_eq!(error.category, PermissionDenied, "{tool} {path}: {error}");
            assert!(error.message.contains(words), "{tool} {path}: {error}");
        }
    }
    let listed = bench.call("list_files", json!({})).unwrap();
    assert_eq!(listed, "p  FIFO\ns  socket\nt.txt  4 bytes\nzero  symlink");
    let found = bench.call("search_files", json!({"pattern": "text"})).unwrap();
    assert_eq!(found, "t.txt:1: text\n[not searched: 3 symlinks or special files]");
}

#[test]
fn huge_files_are_read_in_pieces() {
    let bench = Bench::new();
    File::create(bench.ws("sparse")).unwrap().set_len(50 << 30).unwrap();
    let mut tail = File::create(bench.ws("log")).unwrap();
    tail.write_all("a line of the log\n".repeat(1000).as_bytes()).unwrap();
    tail.set_len(50 << 30).unwrap();
    let mut line = File::create(bench.ws("line")).unwrap();
    for _ in 0..64 {
        line.write_all(&[b'x'; 1 << 20]).unwrap();
    }
    line.write_all(b"\nsecond\n").unwrap();

    assert!(bench.read("sparse").contains("50.0 GiB"), "{}", bench.read("sparse"));
    assert!(bench.lines("sparse", 1, 2).contains("is not a text file"));
    assert!(bench.lines("log", 3, 4).starts_with("[log, lines 3 to 4 of a file of 50.0 GiB]\na line"));
    assert!(bench.lines("log", 1_000_000_000, 1_000_000_000).contains("NUL bytes further on"));
    let head = bench.read("line");
    let label = head.lines().next().unwrap();
    assert_eq!(
        label,
        "[line, line 1 of a file of 64.0 MiB; line 1 is longer than 32.0 KiB and was cut; read on with start_line 2]"
    );
    assert!(head.len() < 33 * 1024);
    assert!(bench.lines("line", 2, 2).ends_with("]\nsecond\n"));

    let found = bench.call("search_files", json!({"pattern": "line"})).unwrap();
    assert_eq!(
        found,
        "no match in 0 files; search for fewer words, or read the files\n[not searched: 3 larger than 16.0 MiB]"
    );
    for path in ["sparse", "log", "line"] {
        let error = bench.call("edit_file", json!({"path": path, "old_text": "a", "new_text": "b"})).unwrap_err();
        assert_eq!(error.category, LimitExceeded, "{error}");
        let error = bench.call("append_file", json!({"path": path, "text": "b"})).unwrap_err();
        assert_eq!(error.category, LimitExceeded, "{error}");
    }
    assert!(bench.call("list_files", json!({})).unwrap().contains("sparse  50.0 GiB"));
}

#[test]
fn what_is_not_utf8_is_named_and_never_damaged() {
    let bench = Bench::new();
    let cases: [(&str, &[u8], &str); 5] = [
        (
            "logo.png",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x01\x02",
            "'logo.png' is not a text file (PNG image, 18 bytes); its content is not shown",
        ),
        (
            "le.txt",
            b"\xff\xfeh\0i\0\n\0",
            "[le.txt, line 1 of 1; UTF-16 text, shown as UTF-8; it cannot be edited]\nhi\n",
        ),
        ("be.txt", b"\xfe\xff\0h\0i", "[be.txt, line 1 of 1; UTF-16 text, shown as UTF-8; it cannot be edited]\nhi"),
        (
            "latin.txt",
            b"caf\xe9\r\n",
            "[latin.txt, line 1 of 1; not UTF-8; shown as Latin-1, so some letters may be wrong]\ncafé\r\n",
        ),
        ("bom.txt", b"\xef\xbb\xbfhi\r\n", "hi\r\n"),
    ];
    for (name, bytes, shown) in cases {
        bench.write(name, bytes);
        assert_eq!(bench.read(name), shown);
    }
    let edit = |path: &str, old: &str, new: &str| {
        bench.call("edit_file", json!({"path": path, "old_text": old, "new_text": new}))
    };
    let before = bench.tree();
    for (path, old, new) in
        [("logo.png", "PNG", "x"), ("le.txt", "h", "x"), ("be.txt", "i", "x"), ("latin.txt", "caf", "é")]
    {
        assert_eq!(edit(path, old, new).unwrap_err().category, Conflict, "{path}");
        assert_eq!(
            bench.call("append_file", json!({"path": path, "text": "é"})).unwrap_err().category,
            Conflict,
            "{path}"
        );
    }
    assert!(before == bench.tree());
    edit("latin.txt", "caf", "CAF").unwrap();
    edit("bom.txt", "hi", "ho").unwrap();
    assert_eq!(fs::read(bench.ws("latin.txt")).unwrap(), b"CAF\xe9\r\n");
    assert_eq!(fs::read(bench.ws("bom.txt")).unwrap(), b"\xef\xbb\xbfho\r\n");
    let found = bench.call("search_files", json!({"pattern": "[Ch]", "regex": true})).unwrap();
    assert_eq!(found, "bom.txt:1: \u{feff}ho\nlatin.txt:1: CAFé\n[not searched: 3 not text]");
}

#[test]
fn listings_are_bounded_and_say_what_is_left_out() {
    let bench = Bench::new();
    for n in 0..20_000 {
        bench.write(&format!("many/{n:05}"), "");
    }
    bench.write("node_modules/x/y", "");
    bench.write("a\nb", "");
    let many = bench.call("list_files", json!({"path": "many"})).unwrap();
    assert_eq!(many.lines().count(), 201);
    assert!(many.starts_with("many/00000  0 bytes\nmany/00001"), "{many}");
    assert!(many.ends_with("[19800 more; give a path, or a limit of up to 1000]"), "{many}");
    let all = bench.call("list_files", json!({"recursive": true, "limit": 3})).unwrap();
    assert_eq!(
        all,
        "\"a\\nb\"  0 bytes\nmany/\nmany/00000  0 bytes\n\
         [20000 more; give a path, or a limit of up to 1000]\n[not looked into: node_modules/]"
    );
    let found = bench.call("search_files", json!({"pattern": "x"})).unwrap();
    assert_eq!(
        found,
        "no match in 20,001 files; search for fewer words, or read the files\n[not searched: node_modules/]"
    );
    assert_eq!(bench.call("list_files", json!({"path": "node_modules/x"})).unwrap(), "node_modules/x/y  0 bytes");
    fs::create_dir(bench.ws("empty")).unwrap();
    assert_eq!(bench.call("list_files", json!({"path": "empty"})).unwrap(), "'empty' is empty");
    let error = bench.call("list_files", json!({"path": "many/00000"})).unwrap_err();
    assert!(error.message.contains("is a file of 0 bytes; read_file"), "{error}");
    let error = bench.call("read_file", json!({"path": "many"})).unwrap_err();
    assert!(error.message.ends_with("is in it: many/00000, many/00001, many/00002, many/00003, many/00004, many/00005, \
             many/00006, many/00007, many/00008, many/00009, many/00010, many/00011, many/00012, many/00013, many/00014, \
             many/00015, many/00016, many/00017, many/00018, many/00019 and many more"), "{error}");
}

#[test]
fn a_file_that_vanished_is_answered_with_those_still_there() {
    let bench = Bench::new();
    bench.write("a.txt", "a");
    bench.write("b.csv", "b");
    bench.call("list_files", json!({})).unwrap();
    fs::remove_file(bench.ws("a.txt")).unwrap();
    for (tool, args) in [
        ("read_file", json!({"path": "a.txt"})),
        ("list_files", json!({"path": "a.txt"})),
        ("search_files", json!({"path": "a.txt", "pattern": "a"})),
        ("edit_file", json!({"path": "a.txt", "old_text": "a", "new_text": "b"})),
    ] {
        let error = bench.call(tool, args).unwrap_err();
        assert_eq!(error.category, NotFound);
        assert!(error.message.ends_with("no such file or folder 'a.txt'. All the files there are: b.csv"), "{error}");
    }
}

#[test]
fn a_search_shows_where_and_ends() {
    let bench = Bench::new();
    bench.write("src/a.rs", "fn main() {}\r\n// a.b\n\n");
    bench.write("src/b.rs", "axb\n");
    bench.write("wide.txt", format!("{}needle{}\n", "é".repeat(5000), "x".repeat(5000)));
    bench.write("empty", "");
    let search = |args| bench.call("search_files", args);
    assert_eq!(search(json!({"pattern": "a.b"})).unwrap(), "src/a.rs:2: // a.b");
    assert_eq!(search(json!({"pattern": "a.b", "regex": true})).unwrap(), "src/a.rs:2: // a.b\nsrc/b.rs:1: axb");
    assert_eq!(
        search(json!({"pattern": "\\{\\}$", "regex": true, "path": "src"})).unwrap(),
        "src/a.rs:1: fn main() {}"
    );
    assert_eq!(search(json!({"pattern": "^$", "regex": true})).unwrap(), "src/a.rs:3: ");
    let wide = search(json!({"pattern": "needle"})).unwrap();
    assert!(wide.contains("needle") && wide.len() < 400, "{wide}");
    bench.write("many", "hit\n".repeat(1000));
    let many = search(json!({"pattern": "hit", "limit": 5})).unwrap();
    assert_eq!(many.lines().count(), 6);
    assert!(many.ends_with("[more than 5 matches; narrow the pattern or the path]"));
    bench.write("evil", "a".repeat(100_000));
    assert!(search(json!({"pattern": "(a+)+$x", "regex": true})).unwrap().starts_with("no match"));
    for (pattern, regex) in [("(", true), ("a\nb", false), ("(a{1000}){1000}", true)] {
        let error = search(json!({"pattern": pattern, "regex": regex})).unwrap_err();
        assert_eq!(error.category, InvalidArguments, "{error}");
    }
    assert!(search(json!({"pattern": "(", "regex": false})).unwrap().starts_with("src/a.rs:1:"));
}

#[test]
fn the_end_of_what_is_tried_of_a_long_line_is_no_end_of_a_line() {
    let bench = Bench::new();
    bench.write("long", [b"x".repeat(16 * 1024 - 1), b"a".to_vec(), b"b".repeat(100)].concat());
    for (pattern, is_found) in [("a$", false), ("xa", true), ("x+", true), ("^x", true), ("b", false)] {
        let found = bench.call("search_files", json!({"pattern": pattern, "regex": true})).unwrap();
        assert_eq!(found.starts_with("long:1: "), is_found, "{pattern}: {found}");
    }
}

#[test]
fn a_stopped_call_ends_and_changes_nothing() {
    let (stopper, stop) = stop_pair();
    let bench = Bench::stopped_by(stop);
    bench.write("a.txt", "a");
    stopper.stop(StopReason::Cancelled);
    let before = bench.tree();
    for (tool, args) in [
        ("search_files", json!({"pattern": "a"})),
        ("edit_file", json!({"path": "a.txt", "old_text": "a", "new_text": "b"})),
        ("append_file", json!({"path": "new/a.txt", "text": "a"})),
        ("create_file", json!({"path": "b.txt", "content": "a"})),
    ] {
        assert_eq!(bench.call(tool, args).unwrap_err().category, Stopped, "{tool}");
    }
    assert!(before == bench.tree());
}

#[test]
fn an_annotation_comes_back_with_the_result() {
    let output = Bench::new().output("annotate", json!({"text": "Check the price", "tags": ["doubt"]})).unwrap();
    assert_eq!(output.annotations.len(), 1);
    assert_eq!(
        (output.annotations[0].text.as_str(), output.text.as_str()),
        ("Check the price", "Saved with the tags doubt.")
    );
}
