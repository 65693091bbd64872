//! What a server asks of programs that read it: its `robots.txt` (RFC 9309).

/// Bytes of the file that are read, and what is read of it: a file of any length must cost little.
pub const MAX_BYTES: usize = 500 * 1024;
const MAX_RULES: usize = 2000;
const MAX_PATTERN: usize = 256;
const MAX_STARS: usize = 8;

/// What one program may read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Robots(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    pattern: String,
    allows: bool,
}

impl Robots {
    /// Nothing.
    pub fn closed() -> Robots {
        Robots(vec![Rule { pattern: "/".into(), allows: false }])
    }

    /// What the file says to the program of this name: the groups that name it, else those for all.
    pub fn parse(text: &str, program: &str) -> Robots {
        let (mut own, mut all) = (None::<Vec<Rule>>, Vec::new());
        let (mut names, mut is_head): (Vec<String>, bool) = (Vec::new(), false);
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            match key.as_str() {
                "user-agent" => {
                    if !is_head {
                        names.clear();
                    }
                    is_head = true;
                    names.push(value.to_ascii_lowercase());
                    if value.eq_ignore_ascii_case(program) {
                        own.get_or_insert_default();
                    }
                }
                "allow" | "disallow" => {
                    is_head = false;
                    let is_ours = value.len() <= MAX_PATTERN
                        && value.matches('*').count() <= MAX_STARS
                        && (value.starts_with('/') || value.starts_with('*'));
                    if !is_ours {
                        continue;
                    }
                    let rule = Rule { pattern: value.into(), allows: key == "allow" };
                    if names.iter().any(|name| name.eq_ignore_ascii_case(program)) {
                        own.get_or_insert_default().push(rule);
                    } else if names.iter().any(|name| name == "*") {
                        all.push(rule);
                    }
                }
                _ => {}
            }
        }
        let mut rules = own.unwrap_or(all);
        rules.truncate(MAX_RULES);
        Robots(rules)
    }

    /// Whether it may read this path, with its query: the longest rule that fits says so, of two as long the one that
    /// allows.
    pub fn allows(&self, path: &str) -> bool {
        let fitting = self.0.iter().filter(|rule| fits(&rule.pattern, path));
        fitting.max_by_key(|rule| (rule.pattern.len(), rule.allows)).is_none_or(|rule| rule.allows)
    }
}

/// Whether a path begins as the pattern says, in which `*` stands for anything and `$` at the end for the path's end.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, to_end) = pattern.strip_suffix('$').map_or((pattern, false), |pattern| (pattern, true));
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        // What stood between two stars is found as early as may be; the last part may have to stand at the end.
        if let Some(between) = last.replace(part) {
            match rest.find(between) {
                Some(at) => rest = &rest[at + between.len()..],
                None => return false,
            }
        }
    }
    match (last, to_end) {
        (None, true) => rest.is_empty(),
        (None, false) => true,
        (Some(part), true) => rest.ends_with(part),
        (Some(part), false) => rest.contains(part),
    }
}
