//! What people and models read is written the same way everywhere: a count of something goes through
//! `text::plural`, or one day a sentence says "1 attempts".

use std::path::{Path, PathBuf};

use crate::support::sources::rust_files;
use regex::Regex;

/// Plurals that are counted in sentences. (Words that are verbs as well, such as "runs" and "answers", would also be
/// found behind names.)
const COUNTED: &str = "attempts|bytes|calls|characters|children|commits|crashes|days|deaths|descriptors|digits|\
    endpoints|entries|errors|events|facts|failures|fields|files|folders|groups|hooks|hours|items|jobs|keys|letters|\
    levels|lines|matches|members|messages|minutes|options|pages|parts|personas|pieces|places|processes|questions|\
    queues|replies|requests|results|retries|roles|rows|rules|schedules|seconds|sessions|skills|slots|steps|texts|\
    threads|times|tokens|tools|tries|turns|values|warnings|words|workers";

/// What looks alike and counts nothing.
const NO_COUNTS: &[&str] = &["{calling} tool calls"];

/// Words between a name and a noun that is not what it counts.
const BETWEEN: &[&str] = &["for ", "has ", "in ", "makes "];

#[test]
fn every_count_of_something_goes_through_one_function() {
    // A name in capitals is of a constant, whose value is known to whoever writes the sentence.
    let counted = Regex::new(&format!(r"\{{([^{{}},\n]*)\}}'? ([a-z-]+ )?(?:{COUNTED})\b")).expect("a pattern");
    let constant = Regex::new(r"^(?:[a-z_]+::)*[A-Z][A-Z0-9_]*$").expect("a pattern");
    // A string goes on in the next line.
    let broken = Regex::new(r"\\\n\s*").expect("a pattern");
    let (mut found, mut files) = (Vec::new(), 0);
    for room in ["app", "core", "infra", "main"] {
        let sources = rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(room));
        let is_said = |file: &PathBuf| file.iter().any(|part| part == "src") && !file.ends_with("tests.rs");
        for file in sources.into_iter().filter(is_said) {
            files += 1;
            let text = std::fs::read_to_string(&file).expect("a source file");
            // What tests say of a failure is for whoever wrote them.
            let text = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
            for hit in counted.captures_iter(&broken.replace_all(text, "")) {
                let between = hit.get(2).map_or("", |word| word.as_str());
                if !constant.is_match(&hit[1]) && !BETWEEN.contains(&between) && !NO_COUNTS.contains(&&hit[0]) {
                    found.push(format!("{}: {}", file.display(), &hit[0]));
                }
            }
        }
    }
    assert!(files > 200, "only {files} source files were looked at");
    assert!(found.is_empty(), "write these with text::plural:\n{}", found.join("\n"));
}
