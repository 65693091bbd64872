//! What a change leaves of a file: all that it does not name.

use std::fs;

use posse_core::tool::ToolError;
use proptest::prelude::*;
use serde_json::json;

use super::support::Bench;

/// What a file of these bytes has after a change.
fn edited(bench: &Bench, bytes: &[u8], old: &str, new: &str) -> Result<Vec<u8>, ToolError> {
    bench.write("f", bytes);
    bench.call_unchecked("edit_file", json!({"path": "f", "old_text": old, "new_text": new}))?;
    Ok(fs::read(bench.ws("f")).unwrap())
}

fn complaint(bench: &Bench, bytes: &[u8], old: &str, new: &str) -> String {
    let error = edited(bench, bytes, old, new).unwrap_err();
    assert_eq!(fs::read(bench.ws("f")).unwrap(), bytes);
    error.message
}

/// The text with the line breaks of a file that has only one kind of them.
fn written(file: &[u8], text: &str) -> String {
    let breaks = || file.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let after_cr = breaks().filter(|(at, _)| *at > 0 && file[at - 1] == b'\r').count();
    match (breaks().count(), after_cr) {
        (0, _) => text.to_owned(),
        (_, 0) => text.replace("\r\n", "\n"),
        (all, crlf) if all == crlf => text.replace("\r\n", "\n").replace('\n', "\r\n"),
        _ => text.to_owned(),
    }
}

#[test]
fn exactly_one_place_is_changed() {
    let bench = Bench::new();
    assert_eq!(edited(&bench, b"\xef\xbb\xbfa\r\nb\nc", "b", "B\r\n").unwrap(), b"\xef\xbb\xbfa\r\nB\r\n\nc");
    assert_eq!(edited(&bench, b"abc", "b", "").unwrap(), b"ac");
    assert_eq!(edited(&bench, b"caf\xe9 one", "one", "two").unwrap(), b"caf\xe9 two");
}

#[test]
fn each_refusal_shows_the_way_out() {
    let bench = Bench::new();
    assert!(complaint(&bench, b"a b a", "a", "x").contains("occurs 2 times"));
    assert!(complaint(&bench, b"aaa", "aa", "x").contains("occurs 2 times"));
    assert!(complaint(&bench, b"x\r\nlast", "x\nlast\n", "y").contains("ends with a line break and the file does not"));
    assert!(complaint(&bench, b"a\r\nb\r\na\r\nb", "a\nb", "x").contains("occurs 2 times"));
    assert!(complaint(&bench, b"a\r\nb", "a\nb", "a\r\nb").contains("the same but for their line breaks"));
    assert!(complaint(&bench, b"a  b", "a b", "x").contains("spaces or line breaks"));
    assert!(complaint(&bench, b"Alpha", "alpha", "x").contains("upper and lower case"));
    assert!(complaint(&bench, b"x", "y", "z").contains("Read the file"));
    assert!(complaint(&bench, b"x", "", "z").contains("old_text is empty"));
    assert!(complaint(&bench, b"x", "x", "x").contains("nothing to change"));
    assert!(complaint(&bench, b"caf\xe9 x", "x", "\u{e9}").contains("not UTF-8"));
    assert!(complaint(&bench, b"\xff\xfea\0", "a", "b").contains("UTF-16"));
    assert!(complaint(&bench, b"\x89PNG\r\n\x1a\n\0", "PNG", "b").contains("PNG image"));
    let late = [vec![b'x'; 8 * 1024], b"needle\0".to_vec()].concat();
    assert!(complaint(&bench, &late, "needle", "b").contains("NUL"));
}

#[test]
fn a_text_that_is_not_there_is_answered_with_the_line_that_may_be_meant() {
    let bench = Bench::new();
    let file = "# Clio\n\nColour: green\nLength: 14.5 m\n* Built in \"Genoa\", 1911.\n";
    let told = |old: &str| {
        let all = complaint(&bench, file.as_bytes(), old, "new");
        all.strip_prefix("old_text does not occur in 'f'; it was not changed. ").unwrap().to_owned()
    };
    let without =
        |what: &str, lines: &str| format!("Without {what} it occurs once. Give old_text without that:\n{lines}");
    let length = "[f, line 4 of 5]\nLength: 14.5 m";
    assert_eq!(told("Length: 14.5 m."), without("the full stop at its end", length));
    assert_eq!(
        told("'14.5 m'"),
        without("the quotation mark at its beginning and the quotation mark at its end", length)
    );
    assert_eq!(told("14.5 m, "), without("the ',' at its end", length));
    assert_eq!(told("  Length: 14.5"), without("the blanks at its beginning", length));
    assert_eq!(told("f:4: Length: 14.5 m"), without("the file's name and the number before each line", length));
    let two = "[f, lines 3 to 4 of 5]\nColour: green\nLength: 14.5 m";
    assert_eq!(told("| Colour: green\n| Length: 14.5 m"), without("the | before each line", two));
    let nearest = "Nearest to it is line 4. Call edit_file again with exactly this old_text:\nLength: 14.5 m";
    assert_eq!(told("Length: 15.5 m"), nearest);
    let spaces = "It differs only in spaces or line breaks. Copy the text exactly:\n";
    assert_eq!(told("Colour:  green\nLength:  14.5 m"), format!("{spaces}{two}"));
    assert_eq!(
        told("length: 14.5"),
        format!("It differs only in upper and lower case. Copy the text exactly:\n{length}")
    );
    assert!(
        told("Length: 14.5 m\nColour: green").starts_with("Each of its lines is there, but not one after the other.")
    );
    assert_eq!(told("Captain: Ada"), "No line of it is like that. Read the file and copy the text exactly");
}

#[test]
fn long_lines_and_long_files_are_told_of_in_part() {
    let bench = Bench::new();
    let wide = format!("{} end of it\nshort\n", "word ".repeat(1000));
    let told = complaint(&bench, wide.as_bytes(), "the end of it", "new");
    assert!(told.len() < 500 && told.contains("[f, line 1 of 2]\nword word") && told.ends_with('…'), "{told}");
    let long = "a line like many\n".repeat(200_000);
    let told = complaint(&bench, long.as_bytes(), "a line like any", "new");
    assert!(told.ends_with("Read the file and copy the text exactly"), "{told}");
    // As the file has it, whatever its line breaks and encoding.
    let told = complaint(&bench, b"\xef\xbb\xbfa one\r\nb two\r\n", "a one\nb two.", "new");
    assert!(told.ends_with("without that:\n[f, lines 1 to 2 of 2]\na one\nb two"), "{told}");
    let told = complaint(&bench, b"caf\xe9 one\n", "cafe one", "new");
    assert!(told.ends_with("exactly this old_text:\ncaf\u{e9} one"), "{told}");
}

#[test]
fn line_breaks_are_the_files_own() {
    let bench = Bench::new();
    let cases: [(&[u8], &str, &str, &[u8]); 9] = [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n"),
        (b"a\r\nb\r\n", "b\n", "", b"a\r\n"),
        (b"a\r\nb\r\n", "\nb", "\nx", b"a\r\nx\r\n"),
        (b"a\nb\n", "a\r\nb", "x\r\ny", b"x\ny\n"),
        (b"a\nb\n", "b", "x\r\ny", b"a\nx\ny\n"),
        (b"\xef\xbb\xbfa\r\nb", "a\n", "\u{feff}x\n", b"\xef\xbb\xbfx\r\nb"),
        // Of both: as the lines that are replaced, else as given.
        (b"a\nb\r\nc\r\nd\n", "b\nc", "x\ny", b"a\nx\r\ny\r\nd\n"),
        (b"a\nb\r\nc", "c", "x\ny", b"a\nb\r\nx\ny"),
    ];
    for (bytes, old, new, wanted) in cases {
        let changed = edited(&bench, bytes, old, new).unwrap();
        assert_eq!(changed.escape_ascii().to_string(), wanted.escape_ascii().to_string(), "{old:?} to {new:?}");
    }
}

proptest! {
    /// Whatever bytes stand around it, they come through as they were.
    #[test]
    fn the_bytes_around_the_place_stay(
        before in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), 0x20u8..0x7f, 0xa0u8..=0xff], 0..200),
        after in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), 0x20u8..0x7f, 0xa0u8..=0xff], 0..200),
        new in "[ -~\r\n]{0,20}",
    ) {
        let bench = Bench::new();
        let bytes = [before.as_slice(), b"<<needle>>", after.as_slice()].concat();
        let new_there = written(&bytes, &new);
        let wanted = [before.as_slice(), new_there.as_bytes(), after.as_slice()].concat();
        prop_assert_eq!(edited(&bench, &bytes, "<<needle>>", &new).unwrap(), wanted);
    }
}

#[test]
fn who_writes_what_is_no_json_into_a_json_file_is_told() {
    let bench = Bench::new();
    let create = |path: &str, content: &str| {
        bench.call("create_file", json!({"path": path, "content": content, "overwrite": true})).unwrap()
    };
    assert_eq!(create("a.json", "{\"a\": [1]}\n"), "'a.json' was written (11 bytes)");
    let told = create("A.JSON", "{\"a\": [1}");
    assert!(
        told.starts_with("'A.JSON' was written (9 bytes); it is not valid JSON: expected `,` or `]` at line 1"),
        "{told}"
    );
    assert_eq!(create("a.txt", "{"), "'a.txt' was written (1 byte)");
    let edit = |path: &str, old: &str, new: &str| {
        bench.call("edit_file", json!({"path": path, "old_text": old, "new_text": new})).unwrap()
    };
    assert_eq!(edit("a.json", "1", "1, 2"), "'a.json' was changed");
    let told = edit("a.json", "]}", "}");
    assert!(told.starts_with("'a.json' was changed; it is no longer valid JSON: expected `,` or `]`"), "{told}");
    assert_eq!(edit("a.json", "1, ", ""), "'a.json' was changed", "it was none before");
}

#[test]
fn added_text_becomes_lines_of_its_own() {
    let bench = Bench::new();
    let cases: [(&[u8], &str, &[u8]); 9] = [
        (b"", "a", b"a\n"),
        (b"a\n", "b\n", b"a\nb\n"),
        (b"a", "b", b"a\nb\n"),
        (b"a\r\nb", "c", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "c\nd\n", b"a\r\nb\r\nc\r\nd\r\n"),
        (b"a\nb\r\n", "c\nd", b"a\nb\r\nc\nd\r\n"),
        (b"\xef\xbb\xbfa\n", "c\r\nd", b"\xef\xbb\xbfa\nc\nd\n"),
        (b"\n", "c", b"\nc\n"),
        (b"\xe9\n", "c", b"\xe9\nc\n"),
    ];
    for (before, text, after) in cases {
        bench.write("f", before);
        bench.call("append_file", json!({"path": "f", "text": text})).unwrap();
        assert_eq!(fs::read(bench.ws("f")).unwrap(), after);
    }
}
