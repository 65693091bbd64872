//! A skill's text as plain Markdown: what a browser would take for HTML is removed, everything else

use posse_core::skill::{SanitiseError, sanitise};
use proptest::prelude::*;
use pulldown_cmark::{Event, Parser, Tag};

#[test]
fn html_goes_and_markdown_stays() {
    let same = |text: &'static str| (text, text);
    let cases = [
        same("# Steps\n\n1. Read *all*.\n2. Write `out.md`.\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        same("a < b, x <= y and i << 2; <https://example.org> and <me@example.org>"),
        same("Use `<div>` or ``<b>`</b>``."),
        same("```html\n<div><script>alert(1)</script></div>\n<!-- kept -->\n```"),
        same("~~~\n<style>\n~~~\n\n    <b>indented code</b>"),
        same("- item\n  ```\n  <br>\n  ```\n- next"),
        same("&lt;script&gt; is text"),
        same("An unfinished <b stays, and a < b > c too"),
        ("a <b>bold</b> word<br/>and <a href=\"x>y\" title='>'>link</a>", "a bold wordand link"),
        ("before <!-- a note --> after", "before  after"),
        ("before\n\n<!-- a\n\nlong note -->\n\nafter", "before\n\n\n\nafter"),
        ("a <script>alert('<b>')</script> b", "a  b"),
        ("<script>\n\nalert(1) // <p>\n\n</script>\n\ntext", "text"),
        ("<SCRIPT SRC=x></SCRIPT >text", "text"),
        ("<style>p { color: red }</style>\ntext", "text"),
        ("<div>\n**kept** <i>text</i>\n</div>", "**kept** text"),
        ("<div><script>if (a<b) { x() }</script>\nkept\n</div>", "kept"),
        ("<div><script>\n\nsplit()\n\n</script></div>\nkept", "kept"),
        ("<details>\n<summary>More</summary>\n\n```\n<div>\n```\n\n</details>", "More\n\n```\n<div>\n```"),
        ("<div>\n```\n<b>\n```\n</div>", "```\n<b>\n```"),
        ("<p>unclosed\n\ntext", "unclosed\n\ntext"),
        ("<div class=\"a\ntext\n\nmore", "text\n\nmore"),
        ("start <script>alert(1)\nsame paragraph\n\nnext paragraph", "start \n\nnext paragraph"),
        ("so <scr<script>x</script>ipt>alert(1)</script>\n\nkept", "so \n\nkept"),
        ("<<b>i>word<</b>/i>", "word"),
        ("<?php echo 1 ?>text<![CDATA[x]]>", "text"),
        ("<!DOCTYPE html>\ntext", "text"),
        ("> <div>\n> quoted\n> </div>", "> \n> quoted\n>"),
        ("<iframe src=x>inside</iframe>text", "text"),
    ];
    for (text, expected) in cases {
        let got = sanitise(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(got, expected, "{text:?}");
    }
}

#[test]
fn nothing_left_is_an_error() {
    for text in [
        "",
        " \n\t\n",
        "<div></div>",
        "<!-- only -->",
        "<!-- never ends\n\ntext",
        "<script>x()</script>",
        "<scr<script>x</script>ipt>never ends\n\ntext",
        "<p>\n<br>\n</p>",
    ] {
        assert_eq!(sanitise(text), Err(SanitiseError::Empty), "{text:?}");
    }
}

#[test]
fn endless_tangles_are_refused_and_take_no_time() {
    // Each round takes out the innermost tag and so makes the next.
    let deep = (0..40).fold("<b>".to_owned(), |inner, _| format!("<{inner}b>"));
    assert_eq!(sanitise(&format!("word {deep}")), Err(SanitiseError::Tangled));
    let many = "<script>".repeat(8000) + "\n\ntext";
    assert_eq!(sanitise(&many), Err(SanitiseError::Empty));
    assert_eq!(sanitise(&"<div ".repeat(12_000)), Err(SanitiseError::Empty));
}

fn has_html(text: &str) -> bool {
    let html = |event| matches!(event, Event::Html(_) | Event::InlineHtml(_) | Event::Start(Tag::HtmlBlock));
    Parser::new(text).any(html)
}

proptest! {
    #[test]
    fn what_comes_out_has_no_html_and_stays(parts in proptest::collection::vec(prop_oneof![
        "[a-z <>/\"'`!-]{0,8}",
        prop_oneof![
            Just("<b>"), Just("</b>"), Just("<script>"), Just("</script>"), Just("<!--"), Just("-->"), Just("<div\n"),
            Just("\n\n"), Just("\n"), Just("```\n"), Just("~~~\n"), Just("> "), Just("- "), Just("    "), Just("<style "),
            Just("é"), Just("<![CDATA["), Just("]]>"), Just("\\"), Just("# "),
        ].prop_map(str::to_owned),
    ], 0..40)) {
        if let Ok(out) = sanitise(&parts.concat()) {
            prop_assert!(!has_html(&out), "{out:?}");
            prop_assert_eq!(sanitise(&out), Ok(out));
        }
    }

    #[test]
    fn code_is_never_touched(code in "[a-z<>/!& \n-]{0,80}") {
        let text = format!("Look:\n\n````\n{code}\n````");
        prop_assert_eq!(sanitise(&text), Ok(text));
    }
}
