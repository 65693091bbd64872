//! Placeholders in what a persona is told, as templates of other programs have them. Nothing here fills
//! them in, so whoever wrote one expects what will not happen.

use posse_core::persona::PersonaTemplate;

/// How they begin and end.
const FORMS: &[(&str, &str)] = &[("{{", "}}"), ("${", "}"), ("{%", "%}"), ("<%", "%>"), ("%(", ")s"), ("{", "}")];

/// Longest name of one.
const MAX_NAME: usize = 64;

/// Those in the texts of a persona, each once, with the field it is in.
pub(super) fn of(persona: &PersonaTemplate) -> Vec<(&'static str, String)> {
    let texts = [("goal", &persona.goal), ("backstory", &persona.backstory)];
    let mut found: Vec<(&'static str, String)> = Vec::new();
    for (field, text) in texts {
        for placeholder in within(text) {
            if !found.iter().any(|(of, seen)| *of == field && *seen == placeholder) {
                found.push((field, placeholder));
            }
        }
    }
    found
}

/// Those in one text. What stands in backticks is spoken about.
fn within(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in text.split('`').step_by(2) {
        let mut rest = part;
        while let Some((at, open, close)) = next(rest) {
            let inside = &rest[at + open.len()..];
            let name = inside.split_once(close).map(|(name, _)| name).filter(|name| is_name(name));
            let length = match name {
                Some(name) => open.len() + name.len() + close.len(),
                None => open.len(),
            };
            if name.is_some() {
                found.push(rest[at..at + length].to_owned());
            }
            rest = &rest[at + length..];
        }
    }
    found
}

/// Where the next one may begin, and how it would; of those at one place the longest.
fn next(text: &str) -> Option<(usize, &'static str, &'static str)> {
    let places = FORMS.iter().filter_map(|(open, close)| Some((text.find(open)?, *open, *close)));
    places.min_by_key(|(at, open, _)| (*at, usize::MAX - open.len()))
}

/// Whether this reads as the name of something to be filled in.
fn is_name(text: &str) -> bool {
    let name = text.trim().trim_start_matches(['=', '-', '#', '/']).trim();
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '|');
    name.len() <= MAX_NAME && name.starts_with(|c: char| c.is_alphabetic() || c == '_') && name.chars().all(legal)
}
