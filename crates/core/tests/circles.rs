//! No two files need each other, be it through others: whoever reads one of a circle has to read all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::sources::rust_files;

/// Where there are no circles: crates, and folders of crates.
const WITHOUT_CIRCLES: &[&str] = &[
    "crates/app/src",
    "crates/core/src",
    "crates/infra/agent/src",
    "crates/infra/host/src",
    "crates/infra/local_model/src",
    "crates/infra/models/src",
    "crates/infra/src",
    "crates/infra/store_sqlite/src",
    "crates/infra/tools/src",
    "crates/main/src",
];

/// A module, by the names that lead to it.
type Module = Vec<String>;

#[test]
fn files_form_no_circle() {
    for folder in WITHOUT_CIRCLES {
        let (src, within) = folder.split_once("/src").expect("sources");
        let within: Module = within.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let sees = seen_by_each(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(src).join("src"));
        let looked_at: Vec<_> = sees.keys().filter(|module| module.starts_with(&within)).collect();
        assert!(!looked_at.is_empty(), "{folder} has no files");
        let in_circles: Vec<_> =
            looked_at.into_iter().filter(|module| reached_from(module, &sees).contains(module)).collect();
        let told = |module: &&Module| {
            let seen = sees[*module].iter().filter(|seen| in_circles.contains(seen)).map(|seen| seen.join("::"));
            format!("{} sees {}", module.join("::"), seen.collect::<Vec<_>>().join(", "))
        };
        let told: Vec<_> = in_circles.iter().map(told).collect();
        assert!(told.is_empty(), "files of {folder} see each other in a circle:\n{}", told.join("\n"));
    }
}

fn reached_from<'a>(from: &'a Module, sees: &'a BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<&'a Module> {
    let (mut reached, mut ahead) = (BTreeSet::new(), vec![from]);
    while let Some(module) = ahead.pop() {
        ahead.extend(sees[module].iter().filter(|seen| reached.insert(*seen)));
    }
    reached
}

/// The modules beneath `src`, and which others each of them names. One that is in another belongs to it, so that neither
/// counts for the other; what a module gives out of another one is that other one's.
fn seen_by_each(src: &Path) -> BTreeMap<Module, BTreeSet<Module>> {
    let codes: BTreeMap<Module, String> =
        rust_files(src).iter().map(|file| (module_of(file, src), product_code(file))).collect();
    let mut given_out = GivenOut::new();
    for (module, code) in &codes {
        for path in named_in(code, true) {
            let from = resolved(module, &path, &codes, &GivenOut::new());
            given_out.insert((module.clone(), path.last().copied().unwrap_or_default().to_owned()), from);
        }
    }
    let seen_by = |module: &Module, code: &str| {
        let named = named_in(code, false).into_iter().map(|path| resolved(module, &path, &codes, &given_out));
        named.filter(|seen| !seen.starts_with(module) && !module.starts_with(seen)).collect()
    };
    codes.iter().map(|(module, code)| (module.clone(), seen_by(module, code))).collect()
}

/// Which module a name is really in that a module gives out.
type GivenOut = BTreeMap<(Module, String), Module>;

fn product_code(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("a source file");
    let product = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = product.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn module_of(file: &Path, src: &Path) -> Module {
    let inside = file.strip_prefix(src).expect("beneath it").with_extension("");
    let mut names: Module = inside.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let is_named_by_its_folder = names.last().is_some_and(|name| name == "mod");
    if is_named_by_its_folder || names == ["lib"] || names == ["main"] {
        names.pop();
    }
    names
}

/// The module in which a path ends that stands in `module`.
fn resolved(module: &Module, path: &[&str], codes: &BTreeMap<Module, String>, given_out: &GivenOut) -> Module {
    let mut place = module.clone();
    for (i, name) in path.iter().enumerate() {
        match *name {
            "crate" if i == 0 => place.clear(),
            "self" => {}
            "super" => drop(place.pop()),
            name => {
                place.push(name.to_owned());
                if !codes.contains_key(&place) {
                    place.pop();
                    while let Some(really) = given_out.get(&(place.clone(), name.to_owned())).filter(|to| **to != place)
                    {
                        place.clone_from(really);
                    }
                    break;
                }
            }
        }
    }
    place
}

/// The paths in a text that begin at the crate or at a module around, also those of one `use` with braces; or those that
/// it gives out.
fn named_in(code: &str, given_out: bool) -> Vec<Vec<&str>> {
    let words = words(code);
    let mut found = Vec::new();
    let mut at = 1;
    while at + 1 < words.len() {
        let begins = match given_out {
            true => words[at - 1] == "use" && ["pub", ")"].contains(&words[at.saturating_sub(2)]),
            false => ["crate", "super", "self"].contains(&words[at]) && words[at + 1] == "::",
        };
        if begins { read(&words, &mut at, Vec::new(), &mut found) } else { at += 1 }
    }
    found
}

fn read<'a>(words: &[&'a str], at: &mut usize, mut path: Vec<&'a str>, found: &mut Vec<Vec<&'a str>>) {
    while let Some(word) = words.get(*at) {
        *at += 1;
        if *word == "{" {
            while words.get(*at).is_some_and(|word| *word != "}") {
                read(words, at, path.clone(), found);
            }
            *at += 1;
            return;
        }
        if word.starts_with(is_of_name) {
            path.push(word);
        }
        if words.get(*at) != Some(&"::") {
            break;
        }
        *at += 1;
    }
    found.push(path);
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Names, `::`, and each other sign by itself.
fn words(mut code: &str) -> Vec<&str> {
    let mut words = Vec::new();
    loop {
        code = code.trim_start();
        let Some(first) = code.chars().next() else { return words };
        let length = match first {
            first if is_of_name(first) => code.find(|c| !is_of_name(c)).unwrap_or(code.len()),
            ':' if code.starts_with("::") => 2,
            first => first.len_utf8(),
        };
        let (word, rest) = code.split_at(length);
        words.push(word);
        code = rest;
    }
}

#[test]
fn what_a_file_names_is_found() {
    let code = "use crate::{a::{B, c::D as E}, f};\npub(super) use l::M;\nlet g = super::h::<T>(self.i, self::j::K);";
    assert_eq!(named_in(code, true), [["l", "M"]]);
    let found: Vec<_> = named_in(code, false).iter().map(|path| path.join("::")).collect();
    for path in ["crate::a::B", "crate::a::c::D", "crate::f", "super::h", "self::j::K"] {
        assert!(found.contains(&path.to_owned()), "{path} is not in {found:?}");
    }
}
