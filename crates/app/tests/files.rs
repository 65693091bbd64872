//! Files of jobs: what is none is told by its name.

use std::io::Cursor;
use std::path::Path;

use posse_app::batch::File;
use posse_app::enqueue::{Intake, RetryAsked};
use posse_app::{Error, Result};
use posse_core::clock::ManualClock;
use posse_core::job::enqueue::EnqueueRequest;
use posse_core::persona::{PersonaFile, PersonaTemplate, Personas};

/// What a file with this in it is told.
fn check(line: &[u8]) -> Result<()> {
    let persona = PersonaTemplate { role: "scribe".into(), goal: "write".into(), ..PersonaTemplate::default() };
    let personas = vec![PersonaFile { file: "scribe.json".into(), persona }];
    let personas = Personas { personas, ..Personas::default() };
    let intake = Intake { personas, models: Vec::new(), priority_step_ms: 0, max_crashes: None };
    let request = EnqueueRequest { role: "scribe".into(), ..EnqueueRequest::default() };
    let workspace = |folder: &Path| Err(Error::invalid(folder.display().to_string()));
    let (retry, clock) = (RetryAsked::default(), &ManualClock::at(0));
    let file = File { name: "jobs", intake: &intake, request: &request, retry, workspace: &workspace, clock };
    file.check(Box::new(Cursor::new(line.to_vec())))
}

#[test]
fn what_is_no_line_of_json_is_told_by_its_name() {
    let wide: Vec<u8> = "{\"goal\": 1}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let marked: Vec<u8> = [&[0xff, 0xfe][..], &wide].concat();
    for (line, words) in [
        (&b"[{\"goal\": \"a\"}]"[..], "begins a JSON array"),
        (b"{", "does not end in it"),
        (b"  \"goal\": \"a\",", "stands in several lines"),
        (b"}", "stands in several lines"),
        (b"{\"goal\": \"a\"},", "ends with a comma"),
        (b"{\"goal\": \"a\"}{\"goal\": \"b\"}", "more than one object"),
        (b"{\"goal\": \"a\"} , {\"goal\": \"b\"}", "more than one object"),
        (b"{\"goal\": \"a\", \"goal\": \"b\"}", "\"goal\" is there twice"),
        (b"{\"meta\": {\"k\": 1, \"k\": 2}}", "\"k\" is there twice"),
        (b"{\"goal\": \"a\0b\"}", "NUL character at byte 11"),
        (b"{\"goal\": \"\xff\"}", "not UTF-8 at byte 10"),
        (b"goal,role", "is no JSON object"),
        (b"\x1f\x8b\x08\x00", "is gzip"),
        (&wide, "UTF-16"),
        (&marked, "UTF-16"),
    ] {
        let said = check(line).expect_err("is none").to_string();
        assert!(said.starts_with("jobs:1: ") && said.contains(words), "{line:?}: {said}");
    }
    check(b"{\"goal\": \"a\"}\r\n").expect("is one");
    // A mark of the order of bytes, as editors and joined files have it.
    check("\u{feff}{\"goal\": \"a\"}\n\u{feff}{\"goal\": \"b\"}".as_bytes()).expect("are two");
}
