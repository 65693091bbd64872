//! What a skill's file says before its text, and what is wrong with it.
//!
//! Two readers have different needs. A run wants every skill that can be used, as the standard's
//! guide for clients asks: a name that does not fit its folder is only a warning. An author wants to
//! hear of everything. So each finding has a [`Severity`], and a check takes none of them lightly.
//! One thing is never read leniently: what restricts a skill. Where that cannot be read, the skill
//! is not loaded.

use crate::text::has_too_many;
use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    MAX_COMPATIBILITY_CHARS, MAX_DESCRIPTION_CHARS, MAX_NAME_CHARS, SUB_SKILLS_KEY, Skill, SkillSource, normal_name,
    sanitise,
};
use crate::persona::Severity;

/// The fields of the standard.
const FIELDS: [&str; 6] = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// A location in a file: line and column, each from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Location {
    /// From 1.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// A field and its value, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// What stands before the colon.
    pub name: String,
    /// What stands behind it.
    pub value: FieldValue,
    /// Where it is.
    pub location: Location,
}

/// A value: nothing is taken for a number, a truth value or nothing at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// One text.
    Text(String),
    /// Several values.
    List(Vec<FieldValue>),
    /// Fields of its own.
    Map(Vec<Field>),
}

impl FieldValue {
    fn text(&self) -> Option<&str> {
        match self {
            FieldValue::Text(text) => Some(text.trim()),
            FieldValue::List(_) | FieldValue::Map(_) => None,
        }
    }
}

/// The fields before a skill's text, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrontMatter {
    /// In the order of the file.
    pub fields: Vec<Field>,
}

/// Something wrong with a skill: which field, where, what is wrong and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillProblem {
    /// The field, where one is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Where it is in the file, where that is known.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub location: Option<Location>,
    /// What is wrong and how to mend it.
    pub message: String,
    /// What that means for the skill.
    pub severity: Severity,
}

/// The skill of a file, if none of its problems is an error, and everything that is wrong with it.
pub fn examine(front: &FrontMatter, body: String, source: SkillSource) -> (Option<Skill>, Vec<SkillProblem>) {
    let folder = normal_name(&source.folder().file_name().unwrap_or_default().to_string_lossy());
    let mut found = Findings { front, problems: Vec::new() };
    found.twice_or_unknown();
    let name = found.name(&folder);
    let description = found.description();
    let license = found.text("license", 1, usize::MAX);
    let compatibility = found.text("compatibility", 1, MAX_COMPATIBILITY_CHARS);
    let (metadata, allowed_skills) = found.metadata();
    let allowed_tools = found.allowed_tools();
    if let Err(error) = sanitise(&body) {
        found.report(None, None, Severity::Warning, format!("{error}. Every call of the skill fails as it is"));
    }
    let usable = found.problems.iter().all(|p| p.severity < Severity::Error);
    let skill =
        Skill { name, description, license, compatibility, metadata, allowed_tools, allowed_skills, body, source };
    (usable.then_some(skill), found.problems)
}

/// Whether a field that the standard does not know is a restriction of tools in other words
/// (`allowed_tools`, `tools`, `disallowed-tools`). Passing over it would give the skill more than
/// its author meant.
fn hides_a_restriction(field: &str) -> bool {
    let letters: String = field.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    field != "allowed-tools" && (letters.contains("tools") || letters == "allowedtool")
}

struct Findings<'a> {
    front: &'a FrontMatter,
    problems: Vec<SkillProblem>,
}

impl<'a> Findings<'a> {
    fn report(&mut self, field: Option<&str>, location: Option<Location>, severity: Severity, message: String) {
        self.problems.push(SkillProblem { field: field.map(str::to_owned), location, message, severity });
    }

    fn about(&mut self, field: &str, severity: Severity, message: String) {
        self.report(Some(field), self.get(field).map(|f| f.location), severity, message);
    }

    fn get(&self, name: &str) -> Option<&Field> {
        self.front.fields.iter().find(|field| field.name == name)
    }

    fn twice_or_unknown(&mut self) {
        let fields: &'a [Field] = &self.front.fields;
        for (n, Field { name, location, .. }) in fields.iter().enumerate() {
            let mut say = |severity, message| self.report(Some(name), Some(*location), severity, message);
            if let Some(first) = fields[..n].iter().find(|earlier| earlier.name == *name) {
                let line = first.location.line;
                say(Severity::Error, format!("stands here for the second time (first on line {line}); remove one"));
            } else if hides_a_restriction(name) {
                let what =
                    "is no field of a skill, but seems to restrict its tools, so the skill is not used without it";
                say(Severity::Error, format!("{what}; write allowed-tools: with the names it may use, or remove it"));
            } else if !FIELDS.contains(&name.as_str()) {
                let known = FIELDS.join(", ");
                let what = "is no field of a skill and is passed over";
                say(Severity::Warning, format!("{what}; fields are {known}. Notes of your own belong under metadata"));
            }
        }
    }

    /// A field that is one text; else a warning, and nothing.
    fn text(&mut self, name: &str, least: usize, most: usize) -> Option<String> {
        let Some(text) = self.get(name)?.value.text().map(str::to_owned) else {
            self.about(name, Severity::Warning, "is not one text and is passed over; write it on one line".into());
            return None;
        };
        let length = text.chars().count();
        if length < least {
            self.about(name, Severity::Warning, "is empty; write something or remove the line".into());
            return None;
        }
        if length > most {
            self.about(name, Severity::Warning, has_too_many(length, "character", most));
        }
        Some(text)
    }

    fn name(&mut self, folder: &str) -> String {
        let written = self.get("name").and_then(|field| field.value.text()).map(normal_name).unwrap_or_default();
        if written.is_empty() {
            let severity = if folder.is_empty() { Severity::Error } else { Severity::Warning };
            self.about("name", severity, format!("is missing; write name: {folder}, the name of its folder"));
            return folder.to_owned();
        }
        let mut wrong = |message: String| self.about("name", Severity::Warning, message);
        let length = written.chars().count();
        if length > MAX_NAME_CHARS {
            wrong(has_too_many(length, "character", MAX_NAME_CHARS));
        }
        if written != written.to_lowercase() {
            wrong(format!("'{written}' has capital letters; write {}", written.to_lowercase()));
        }
        if let Some(c) = written.chars().find(|c| !c.is_alphanumeric() && *c != '-') {
            wrong(format!("'{written}' contains {c:?}; use lower-case letters, digits and '-'"));
        }
        if written.starts_with('-') || written.ends_with('-') || written.contains("--") {
            wrong(format!("'{written}' has a '-' at an end or two in a row; put single ones between words"));
        }
        if written != folder {
            wrong(format!("is '{written}' but the folder is '{folder}'; give both the same name"));
        }
        written
    }

    fn description(&mut self) -> String {
        let text = self.get("description").and_then(|field| field.value.text()).unwrap_or_default().to_owned();
        let length = text.chars().count();
        if text.is_empty() {
            let message =
                "is missing; say on one line what the skill does and when to use it, since this is all an agent sees";
            self.about("description", Severity::Error, message.into());
        } else if length > MAX_DESCRIPTION_CHARS {
            let too_many = has_too_many(length, "character", MAX_DESCRIPTION_CHARS);
            let message = format!("{too_many}, and what is beyond is not shown to agents");
            self.about("description", Severity::Warning, message);
        }
        text
    }

    /// What the author noted, and of it the skills that this one may call.
    fn metadata(&mut self) -> (BTreeMap<String, String>, Vec<String>) {
        let fields = match self.get("metadata").map(|field| &field.value) {
            None => return Default::default(),
            Some(FieldValue::Map(fields)) => fields.clone(),
            Some(FieldValue::Text(_) | FieldValue::List(_)) => {
                let message =
                    "has no names and values and is passed over; write each as name: value, indented, below it";
                self.about("metadata", Severity::Warning, message.into());
                return Default::default();
            }
        };
        let mut metadata = BTreeMap::new();
        for field in fields {
            let name = format!("metadata.{}", field.name);
            let wrong = match field.value {
                FieldValue::Text(text) => match metadata.insert(field.name, text) {
                    None => continue,
                    Some(_) => "stands here for the second time; remove one",
                },
                FieldValue::List(_) | FieldValue::Map(_) => "is not one text and is passed over; write it on one line",
            };
            self.report(Some(&name), Some(field.location), Severity::Warning, wrong.into());
        }
        let skills = metadata.get(SUB_SKILLS_KEY).map(|names| names.split_whitespace().map(normal_name).collect());
        (metadata, skills.unwrap_or_default())
    }

    /// None where the file says nothing of tools. What is said and cannot be read is an error.
    fn allowed_tools(&mut self) -> Option<Vec<String>> {
        const FIELD: &str = "allowed-tools";
        let names = match &self.get(FIELD)?.value {
            FieldValue::Text(text) => names(text),
            FieldValue::List(values) => {
                let list: Option<Vec<_>> = values.iter().map(|value| Some(value.text()?.to_owned())).collect();
                if let Some(list) = &list {
                    let message = format!("is a list; the standard has one text: allowed-tools: {}", list.join(" "));
                    self.about(FIELD, Severity::Warning, message);
                }
                list
            }
            FieldValue::Map(_) => None,
        };
        match names {
            Some(mut names) => {
                if names.iter().any(|name| name.ends_with(',')) {
                    let message = "has commas; the standard separates names by spaces alone";
                    self.about(FIELD, Severity::Warning, message.into());
                    names.iter_mut().for_each(|name| *name = name.trim_end_matches(',').to_owned());
                }
                names.retain(|name| !name.is_empty());
                Some(names)
            }
            None => {
                let message =
                    "cannot be read, so the skill is not used; write the names on one line, separated by spaces";
                self.about(FIELD, Severity::Error, message.into());
                Some(Vec::new())
            }
        }
    }
}

/// Names separated by spaces, each with its parentheses; none where these do not match.
fn names(text: &str) -> Option<Vec<String>> {
    let (mut names, mut depth) = (vec![String::new()], 0_u32);
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if c.is_whitespace() && depth == 0 {
            names.push(String::new());
        } else if let Some(name) = names.last_mut() {
            name.push(c);
        }
    }
    // Several commas without spaces are several names too.
    let parts = names.iter().flat_map(|name| match name.contains('(') {
        true => vec![name.clone()],
        false => name.split_inclusive(',').map(str::to_owned).collect(),
    });
    (depth == 0).then(|| parts.filter(|name| !name.is_empty()).collect())
}
