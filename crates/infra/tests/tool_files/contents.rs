//! Contents of every kind, and how large files are said to be.

use std::fs::File;

use serde_json::json;

use super::support::Bench;

#[test]
fn contents_are_told_apart() {
    let bench = Bench::new();
    let cases: [(&[u8], &str); 15] = [
        (b"", "(empty file)"),
        (b"plain\r\n", "plain\r\n"),
        ("größe, 数, \u{1f600}".as_bytes(), "größe, 数, \u{1f600}"),
        (&"数".as_bytes()[..2], "shown as Latin-1"),
        (b"caf\xe9 cr\xe8me br\xfbl\xe9e", "café crème brûlée"),
        (b"GIF89 is how some files begin", "GIF89 is how some files begin"),
        (b"\x89PNG\r\n\x1a\n\0\0", "(PNG image,"),
        (b"%PDF-1.7", "(PDF document,"),
        (b"a\0b", "(unknown type,"),
        (b"\x01\x02\x03abc", "(unknown type,"),
        (b"\xff\xfeh\0i\0", "UTF-16 text, shown as UTF-8; it cannot be edited]\nhi"),
        (b"\xfe\xff\0h", "UTF-16 text, shown as UTF-8; it cannot be edited]\nh"),
        (b"\xfe\xff\xd8\x3d\xde\x00", "\u{1f600}"),
        (b"\xff\xfeh\0i", "(damaged UTF-16,"),
        (b"\xff\xfe\x3d\xd8", "(damaged UTF-16,"),
    ];
    for (bytes, wanted) in cases {
        bench.write("f", bytes);
        let shown = bench.call("read_file", json!({"path": "f"})).unwrap();
        assert!(shown.contains(wanted), "{}: {shown}", bytes.escape_ascii());
    }
}

#[test]
fn a_line_is_cut_between_characters() {
    let bench = Bench::new();
    for begin in ["", "a", "ab"] {
        bench.write("f", format!("{begin}{}", "数".repeat(20_000)));
        let shown = bench.call("read_file", json!({"path": "f"})).unwrap();
        assert!(shown.contains("was cut") && !shown.contains("Latin-1") && shown.ends_with('数'), "{begin}");
    }
}

#[test]
fn sizes_read_well() {
    let bench = Bench::new();
    let sizes = [
        (0, "0 bytes"),
        (1, "1 byte"),
        (10_239, "10,239 bytes"),
        (10_240, "10.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (50 << 30, "50.0 GiB"),
    ];
    for (n, (bytes, _)) in sizes.iter().enumerate() {
        File::create(bench.ws(&n.to_string())).unwrap().set_len(*bytes).unwrap();
    }
    let lines: Vec<_> = sizes.iter().enumerate().map(|(n, (_, size))| format!("{n}  {size}")).collect();
    assert_eq!(bench.call("list_files", json!({})).unwrap(), lines.join("\n"));
}
