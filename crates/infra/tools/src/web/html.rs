//! A page as text that can be read: headings, lists, tables and links stay, scripts and what is hidden go.
//!
//! It goes over the page once and never back, so a page made to be slow is not; what is not well formed is read as far
//! as it can be told.

use reqwest::Url;

/// The longest address of a link that is shown.
const MAX_HREF: usize = 500;

/// How far the next text stands from the one before.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Gap {
    None,
    Space,
    Line,
    Paragraph,
}

struct Page {
    out: String,
    title: String,
    base: Url,
    gap: Gap,
    /// How many `pre` are open.
    pre: usize,
    /// The lists that are open; of a numbered one, the number of its next item.
    lists: Vec<Option<u32>>,
    /// Where the text of the open link begins, and its address.
    link: Option<(usize, Option<String>)>,
    /// What is hidden until it ends: the name, and how many of that name are open.
    hidden: Option<(String, usize)>,
    is_title: bool,
    is_first_cell: bool,
}

/// The text of a page that is at `url`.
pub(super) fn readable(html: &str, url: &Url) -> String {
    let mut page = Page {
        out: String::new(),
        title: String::new(),
        base: url.clone(),
        gap: Gap::None,
        pre: 0,
        lists: Vec::new(),
        link: None,
        hidden: None,
        is_title: false,
        is_first_cell: true,
    };
    let mut rest = html;
    while !rest.is_empty() {
        let end = rest.find('<').unwrap_or(rest.len());
        page.text(&rest[..end]);
        rest = page.markup(&rest[end..]);
    }
    page.end_link();
    let title = page.title.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines =
        page.out.lines().map(str::trim_end).filter(|line| line.is_empty() || !line.trim_matches('#').is_empty());
    let text = lines.collect::<Vec<_>>().join("\n");
    match title.is_empty() {
        true => text.trim().to_owned(),
        false => format!("Title: {title}\n\n{}", text.trim()),
    }
}

impl Page {
    /// Reads what begins with `<`, and gives what comes behind it.
    fn markup<'a>(&mut self, text: &'a str) -> &'a str {
        let after = |what: &str| text.find(what).map_or("", |at| &text[at + what.len()..]);
        if text.is_empty() {
            return text;
        }
        if text.starts_with("<!--") {
            return after("-->");
        }
        if text.starts_with("<!") || text.starts_with("<?") {
            return after(">");
        }
        let (is_end, inner) = match text.strip_prefix("</") {
            Some(inner) => (true, inner),
            None => (false, &text[1..]),
        };
        if !inner.starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.text("<");
            return &text[1..];
        }
        let name_end = inner.find(|c: char| c.is_whitespace() || c == '/' || c == '>').unwrap_or(inner.len());
        let name = inner[..name_end].to_ascii_lowercase();
        let (attributes, rest) = attributes(&inner[name_end..]);
        if is_end {
            self.end(&name);
            return rest;
        }
        if ["script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "math"].contains(&&*name) {
            return past(rest, &name);
        }
        self.begin(&name, &attributes);
        rest
    }

    fn begin(&mut self, name: &str, attributes: &[(String, String)]) {
        let get = |wanted: &str| attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        if let Some((hidden, depth)) = &mut self.hidden {
            *depth += usize::from(*hidden == name);
            return;
        }
        let style = get("style").unwrap_or_default().replace(char::is_whitespace, "").to_ascii_lowercase();
        let is_hidden =
            get("hidden").is_some() || style.contains("display:none") || style.contains("visibility:hidden");
        // These have to be ended, so that no page is hidden by an end that is left out.
        const ENDED: [&str; 11] =
            ["div", "span", "section", "a", "ul", "table", "details", "aside", "nav", "form", "article"];
        if is_hidden && ENDED.contains(&name) {
            self.hidden = Some((name.to_owned(), 1));
            return;
        }
        match name {
            "title" => self.is_title = true,
            "base" => self.base = get("href").and_then(|href| self.base.join(href).ok()).unwrap_or(self.base.clone()),
            "br" => self.newline(),
            "hr" => self.gap(Gap::Paragraph),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.gap(Gap::Paragraph);
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.put(&format!("{} ", "#".repeat(level)));
            }
            "ul" | "ol" | "menu" => {
                self.gap(if self.lists.is_empty() { Gap::Paragraph } else { Gap::Line });
                // Deeper ones are shown as this one, so that no page makes it cost more.
                if self.lists.len() < 20 {
                    self.lists.push((name == "ol").then_some(1));
                }
            }
            "li" => {
                self.gap(Gap::Line);
                let indent = "  ".repeat(self.lists.len().saturating_sub(1));
                let mark = match self.lists.last_mut() {
                    Some(Some(next)) => {
                        *next = next.saturating_add(1);
                        format!("{indent}{}. ", *next - 1)
                    }
                    _ => format!("{indent}- "),
                };
                self.put(&mark);
            }
            "tr" => {
                self.gap(Gap::Line);
                self.is_first_cell = true;
            }
            "td" | "th" => {
                if !std::mem::replace(&mut self.is_first_cell, false) {
                    self.gap = Gap::None;
                    self.out.push_str(" | ");
                }
            }
            "pre" => {
                self.gap(Gap::Paragraph);
                self.pre += 1;
            }
            "img" => {
                if let Some(alt) = get("alt").filter(|alt| !alt.trim().is_empty()) {
                    self.text(&format!(" [image: {}] ", alt.trim()));
                }
            }
            "a" => {
                self.end_link();
                let href = get("href").filter(|href| !href.starts_with('#'));
                let href = href.and_then(|href| self.base.join(href.trim()).ok());
                let href = href.filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"));
                let href = href.map(String::from).filter(|url| url.len() <= MAX_HREF);
                if href.is_some() {
                    self.put("[");
                }
                self.link = Some((self.out.len(), href));
            }
            _ => self.gap(gap_of(name)),
        }
    }

    fn end(&mut self, name: &str) {
        if let Some((hidden, depth)) = &mut self.hidden {
            if *hidden == name {
                *depth -= 1;
                if *depth == 0 {
                    self.hidden = None;
                }
            }
            return;
        }
        match name {
            "title" => self.is_title = false,
            "a" => self.end_link(),
            "ul" | "ol" | "menu" => {
                self.lists.pop();
                self.gap(if self.lists.is_empty() { Gap::Paragraph } else { Gap::Line });
            }
            "pre" => {
                self.pre = self.pre.saturating_sub(1);
                self.gap(Gap::Paragraph);
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.gap(Gap::Paragraph),
            "li" | "tr" => self.gap(Gap::Line),
            "td" | "th" => {}
            _ => self.gap(gap_of(name)),
        }
    }

    fn end_link(&mut self) {
        let Some((began, href)) = self.link.take() else { return };
        let Some(href) = href else { return };
        if self.out.len() == began {
            // Nothing to be seen of it.
            self.out.pop();
            return;
        }
        self.out.push_str("](");
        self.out.push_str(&href);
        self.out.push(')');
    }

    fn gap(&mut self, gap: Gap) {
        if gap > self.gap {
            self.gap = gap;
        }
    }

    fn newline(&mut self) {
        match self.gap {
            Gap::Line => self.gap = Gap::Paragraph,
            _ => self.gap(Gap::Line),
        }
    }

    /// Puts the gap that is due, and then this.
    fn put(&mut self, text: &str) {
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        if !self.out.is_empty() {
            match gap {
                Gap::None => {}
                Gap::Space if self.out.ends_with(['[', ' ', '\n']) => {}
                Gap::Space => self.out.push(' '),
                Gap::Line if self.out.ends_with('\n') => {}
                Gap::Line => self.out.push('\n'),
                Gap::Paragraph if self.out.ends_with("\n\n") => {}
                Gap::Paragraph if self.out.ends_with('\n') => self.out.push('\n'),
                Gap::Paragraph => self.out.push_str("\n\n"),
            }
        }
        self.out.push_str(text);
    }

    fn text(&mut self, raw: &str) {
        if raw.is_empty() || self.hidden.is_some() {
            return;
        }
        let text = entities(raw);
        if self.is_title {
            self.title.push_str(&text);
            return;
        }
        if self.pre > 0 {
            self.put(&text);
            return;
        }
        for (i, word) in text.split(|c: char| c.is_whitespace() && c != '\u{a0}').enumerate() {
            if i > 0 {
                self.gap(Gap::Space);
            }
            if !word.is_empty() {
                self.put(word);
            }
        }
    }
}

fn gap_of(name: &str) -> Gap {
    match name {
        "p" | "table" | "blockquote" | "article" | "section" | "header" | "footer" | "main" | "nav" | "aside"
        | "dl" | "figure" | "form" | "fieldset" => Gap::Paragraph,
        "div" | "dt" | "dd" | "address" | "caption" | "figcaption" | "option" | "summary" | "details" | "legend"
        | "thead" | "tbody" | "tfoot" | "body" | "html" | "head" => Gap::Line,
        _ => Gap::None,
    }
}

/// The attributes of a tag, and what comes behind its end.
fn attributes(text: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if let Some(after) = rest.strip_prefix('>') {
            return (found, after);
        }
        if rest.is_empty() {
            return (found, rest);
        }
        // An `=` where a name is to begin is the name's.
        let ends = |c: char| c.is_whitespace() || matches!(c, '/' | '>' | '=');
        let end = rest.char_indices().skip(1).find(|(_, c)| ends(*c)).map_or(rest.len(), |(at, _)| at);
        let name = rest[..end].to_ascii_lowercase();
        rest = rest[end..].trim_start();
        let mut value = "";
        if let Some(after) = rest.strip_prefix('=') {
            let after = after.trim_start();
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
            (value, rest) = match quote {
                Some(quote) => match after[1..].split_once(quote) {
                    Some(found) => found,
                    None => (&after[1..], ""),
                },
                None => {
                    let end = after.find(|c: char| c.is_whitespace() || c == '>').unwrap_or(after.len());
                    after.split_at(end)
                }
            };
        }
        // More than any page needs of one tag.
        if found.len() < 100 {
            found.push((name, entities(value)));
        }
    }
}

/// What comes behind the end of an element whose inside is no text.
fn past<'a>(text: &'a str, name: &str) -> &'a str {
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        rest = &rest[at + 2..];
        let is_it = rest.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
        if is_it {
            return rest.find('>').map_or("", |end| &rest[end + 1..]);
        }
    }
    ""
}

/// Names of characters, each before what it stands for.
const NAMED: &str = "amp & lt < gt > quot \" apos ' copy © reg ® trade ™ hellip … mdash — ndash – lsquo ‘ rsquo ’ ldquo “ \
    rdquo ” laquo « raquo » bull • middot · euro € pound £ yen ¥ cent ¢ sect § para ¶ deg ° plusmn ± times × divide ÷ \
    frac12 ½ frac14 ¼ frac34 ¾ larr ← rarr → uarr ↑ darr ↓ auml ä ouml ö uuml ü Auml Ä Ouml Ö Uuml Ü szlig ß eacute é \
    Eacute É egrave è agrave à ccedil ç oslash ø Oslash Ø aring å Aring Å aelig æ AElig Æ ntilde ñ iexcl ¡ iquest ¿";

/// A text with its entities written out.
fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.bytes().take(12).position(|b| b == b';');
        let known = end.and_then(|end| Some((entity(&rest[..end])?, end)));
        match known {
            Some((meant, end)) => {
                out.push_str(&meant);
                rest = &rest[end + 1..];
            }
            None => out.push('&'),
        }
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return Some(char::from_u32(code).filter(|c| *c != '\0').unwrap_or('\u{fffd}').to_string());
    }
    match name {
        "nbsp" | "ensp" | "emsp" | "thinsp" => Some(" ".into()),
        "shy" | "zwnj" | "zwj" => Some(String::new()),
        _ => {
            let meant = NAMED.split_whitespace().skip(1).step_by(2);
            let mut known = NAMED.split_whitespace().step_by(2).zip(meant);
            known.find(|(known, _)| *known == name).map(|(_, meant)| meant.to_owned())
        }
    }
}
