//! Reads an expression and calculates it on the way; what it cannot read it says in words that a
//! small language model can act on.

use std::cmp::Ordering;

use posse_core::tool::ToolError;

use super::super::failure::{invalid, over_limit};
use super::number::{MAX_DIGITS, Number, Trouble};

pub(super) const MAX_DEPTH: usize = 64;
const MAX_POWER: u32 = 1000;
const MAX_PLACES: i32 = 20;
/// Squares of the bits of all results together: a step takes as long as the square of its length. About a fifth of a
/// second.
const MAX_EFFORT: u64 = 1 << 33;

#[derive(Clone, Copy)]
enum Function {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Round,
}

impl Function {
    fn named(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "sum" => Self::Sum,
            "avg" | "average" | "mean" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "count" => Self::Count,
            "round" => Self::Round,
            _ => return None,
        })
    }
}

const PLUS: &[&str] = &["+"];
const MINUS: &[&str] = &["-", "−", "–"];
const TIMES: &[&str] = &["*", "×", "·", "⋅", "∙"];
const OVER: &[&str] = &["/", "÷"];
const POWER: &[&str] = &["**", "^"];

/// Descends from sums to products to signs to powers to numbers, brackets and calls.
pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    effort: u64,
    /// Whether there was a `%` between numbers.
    pub(super) has_remainder: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, at: usize) -> Self {
        Parser { text, at, depth: 0, effort: 0, has_remainder: false }
    }

    pub(super) fn all(&mut self) -> Result<Number, ToolError> {
        let result = self.sum()?;
        match self.peek() {
            None => Ok(result),
            Some(_) => Err(self.no_operator()),
        }
    }

    fn sum(&mut self) -> Result<Number, ToolError> {
        let (mut left, percent) = self.product()?;
        loop {
            let minus = self.take(MINUS);
            let Some(at) = minus.or_else(|| self.take(PLUS)) else { return Ok(left) };
            let (right, right_percent) = self.product()?;
            // 200 + 19% is 238 to one reader and 200.19 to another.
            if let (Some(place), None) | (None, Some(place)) = (percent, right_percent) {
                return Err(self.bad(
                    place,
                    "does not say of what. Write it, for example 200 + 19% of 200, or multiply: 200 * 119%",
                ));
            }
            let right = if minus.is_some() { right.negated() } else { right };
            left = self.done(at, left.plus(&right))?;
        }
    }

    /// And where the `%` is, if it is a percentage and nothing else.
    fn product(&mut self) -> Result<(Number, Option<usize>), ToolError> {
        let (mut left, mut percent) = self.factor()?;
        let mut is_alone = true;
        loop {
            left = if let Some(at) = self.take(TIMES).or_else(|| self.take_x()).or_else(|| self.take_of(percent)) {
                let right;
                (right, percent) = self.factor()?;
                self.done(at, left.times(&right))?
            } else if let Some(at) = self.take(OVER) {
                let right;
                (right, percent) = self.factor()?;
                self.done(at, left.over(&right))?
            } else if let Some(at) = self.take(&["%"]) {
                self.has_remainder = true;
                percent = None;
                let right = self.power()?;
                self.done(at, left.modulo(&right))?
            } else {
                return Ok((left, percent.filter(|_| is_alone)));
            };
            is_alone = false;
        }
    }

    /// A number, or so many hundredths: what a `%` means that has no number behind it. And where that is.
    fn factor(&mut self) -> Result<(Number, Option<usize>), ToolError> {
        let value = self.signed()?;
        let behind = self.at;
        let Some(at) = self.take(&["%"]) else { return Ok((value, None)) };
        if self.begins_operand() {
            self.at = behind;
            return Ok((value, None));
        }
        Ok((self.done(at, value.over(&100.into()))?, Some(at)))
    }

    /// A sign stands for the whole power: -2^2 is -4.
    fn signed(&mut self) -> Result<Number, ToolError> {
        let mut negative = false;
        loop {
            if self.take(MINUS).is_some() {
                negative = !negative;
            } else if self.take(PLUS).is_none() {
                break;
            }
        }
        let value = self.power()?;
        Ok(if negative { value.negated() } else { value })
    }

    fn power(&mut self) -> Result<Number, ToolError> {
        let base = self.operand()?;
        let Some(at) = self.take(POWER) else { return Ok(base) };
        let exponent = self.deeper(at, Self::signed)?;
        let Some(power) = exponent.whole().filter(|power| power.unsigned_abs() <= MAX_POWER) else {
            let range = format!("from -{MAX_POWER} to {MAX_POWER}");
            return Err(
                self.bad(at, &format!("needs a whole number {range} behind it. Write one, for example 1.05^10"))
            );
        };
        self.done(at, base.to_the(power))
    }

    fn operand(&mut self) -> Result<Number, ToolError> {
        match self.peek() {
            Some('0'..='9' | '.') => self.number(),
            Some('(') => self.bracketed(Self::sum),
            Some(letter) if letter.is_alphabetic() => self.call(),
            _ => Err(self.no_operand()),
        }
    }

    fn number(&mut self) -> Result<Number, ToolError> {
        let at = self.at;
        let digits = self.token(at);
        self.at += digits.len();
        match digits.matches('.').count() {
            _ if digits == "." => Err(self.no_part(at)),
            // A full stop may end it.
            0 | 1 => {
                let too_long = format!("has more than {MAX_DIGITS} digits, which is the limit. Shorten it");
                Number::read(digits).ok_or_else(|| self.too_much(at, &too_long))
            }
            _ => Err(self.bad(at, "has more than one decimal point. Write numbers like 1234.50")),
        }
    }

    fn call(&mut self) -> Result<Number, ToolError> {
        let at = self.at;
        let word = self.token(at);
        let Some(function) = Function::named(word) else {
            return Err(self.bad(
                at,
                "is no number and no function. There are sum(a, b), avg(a, b), min(a, b), max(a, b), count(a, b) and \
                 round(x, places); write everything else as numbers, without words and units",
            ));
        };
        self.at += word.len();
        if self.peek() != Some('(') {
            return Err(self.bad(at, "needs its numbers in ( ) behind it, for example sum(84.50, 212.00)"));
        }
        if self.text[self.at + 1..].trim_start().starts_with(')') {
            return Err(self.bad(at, "has nothing in its ( ). Write the numbers there, for example sum(84.50, 212.00)"));
        }
        let given = self.bracketed(Self::list)?;
        self.done_call(at, function, given)
    }

    fn done_call(&mut self, at: usize, function: Function, given: Vec<Number>) -> Result<Number, ToolError> {
        let count = Number::from(given.len());
        let best = |given: Vec<Number>, better| {
            given.into_iter().reduce(|best, n| if n.cmp(&best) == better { n } else { best })
        };
        match function {
            Function::Sum | Function::Avg => {
                let mut total = Number::from(0);
                for number in &given {
                    total = self.done(at, total.plus(number))?;
                }
                if matches!(function, Function::Avg) { self.done(at, total.over(&count)) } else { Ok(total) }
            }
            Function::Min => Ok(best(given, Ordering::Less).unwrap_or(count)),
            Function::Max => Ok(best(given, Ordering::Greater).unwrap_or(count)),
            Function::Count => Ok(count),
            Function::Round => {
                let places = match &*given {
                    [_] => Some(0),
                    [_, places] => places.whole().filter(|n| (0..=MAX_PLACES).contains(n)),
                    _ => None,
                };
                let form = format!("how many decimal places (0 to {MAX_PLACES}), for example round(2.345, 2)");
                let misfit = || self.bad(at, &format!("takes one number and {form}"));
                places.map(|places| given[0].rounded(places)).ok_or_else(misfit)
            }
        }
    }

    /// The numbers of a call. A comma that may belong to a number ("1,234.50", "84,50") is refused:
    /// taking it for the end of one would give a wrong sum without a word.
    fn list(&mut self) -> Result<Vec<Number>, ToolError> {
        let (mut given, mut tight, mut has_spaced) = (vec![self.sum()?], None, false);
        while let Some(at) = self.take(&[","]) {
            let (before, behind) = (&self.text[..at], &self.text[at + 1..]);
            has_spaced |= behind.starts_with(char::is_whitespace);
            if before.ends_with(|c: char| c.is_ascii_digit()) && behind.starts_with(|c: char| c.is_ascii_digit()) {
                tight = tight.or(Some(at));
                if is_in_number(before, behind) {
                    return Err(self.unclear_comma(at));
                }
            }
            given.push(self.sum()?);
        }
        match tight.filter(|_| has_spaced) {
            Some(at) => Err(self.unclear_comma(at)),
            None => Ok(given),
        }
    }

    /// What stands in the bracket at which the parser is.
    fn bracketed<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ToolError>) -> Result<T, ToolError> {
        let open = self.at;
        self.at += 1;
        let inside = self.deeper(open, read)?;
        match self.peek() {
            Some(')') => self.at += 1,
            None => return Err(self.bad(open, "is never closed. Add the missing ')'")),
            Some(_) => return Err(self.no_operator()),
        }
        Ok(inside)
    }

    fn deeper<T>(&mut self, at: usize, read: impl FnOnce(&mut Self) -> Result<T, ToolError>) -> Result<T, ToolError> {
        if self.depth == MAX_DEPTH {
            let way_out = "Calculate the inner part in a call of its own, and write its result here";
            return Err(self.too_much(at, &format!("is nested more than {MAX_DEPTH} deep. {way_out}")));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// The next character that is no space; the parser stands at it then.
    fn peek(&mut self) -> Option<char> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest.chars().next()
    }

    /// Goes past one of these and says where it stood.
    fn take(&mut self, signs: &[&str]) -> Option<usize> {
        self.peek();
        let at = self.at;
        let sign = signs.iter().find(|sign| self.text[at..].starts_with(**sign))?;
        self.at += sign.len();
        Some(at)
    }

    /// The letter x for times, as in 3 x 4, unless a word begins with it.
    fn take_x(&mut self) -> Option<usize> {
        self.peek();
        let token = self.token(self.at);
        let behind = token.strip_prefix(['x', 'X'])?;
        (!behind.starts_with(char::is_alphabetic)).then(|| {
            self.at += 1;
            self.at - 1
        })
    }

    /// The word of, for times behind a percentage.
    fn take_of(&mut self, percent: Option<usize>) -> Option<usize> {
        let token = self.token(self.at);
        (percent.is_some() && token.eq_ignore_ascii_case("of")).then(|| {
            self.at += token.len();
            self.at - token.len()
        })
    }

    fn begins_operand(&mut self) -> bool {
        match self.peek() {
            Some('0'..='9' | '.' | '(') => true,
            _ => Function::named(self.token(self.at)).is_some(),
        }
    }

    /// The word, number or sign at that place.
    fn token(&self, at: usize) -> &'a str {
        let rest = &self.text[at..];
        let while_all = |fits: fn(char) -> bool| &rest[..rest.find(|c| !fits(c)).unwrap_or(rest.len())];
        match rest.chars().next() {
            Some('0'..='9' | '.') => while_all(|c| c.is_ascii_digit() || c == '.'),
            Some(letter) if letter.is_alphabetic() => while_all(char::is_alphanumeric),
            Some(_) if rest.starts_with("**") => &rest[..2],
            Some(sign) => &rest[..sign.len_utf8()],
            None => "",
        }
    }

    fn done(&mut self, at: usize, result: Result<Number, Trouble>) -> Result<Number, ToolError> {
        let trouble = match result {
            Ok(number) => {
                self.effort += number.bits().pow(2);
                if self.effort <= MAX_EFFORT {
                    return Ok(number);
                }
                Trouble::TooFine
            }
            Err(trouble) => trouble,
        };
        Err(match trouble {
            Trouble::ByZero => {
                self.bad(at, "divides by zero: what stands behind it is 0. Correct that number, or do not divide by it")
            }
            Trouble::TooLarge => {
                let limit = format!("{MAX_DIGITS} digits before the point, which is the limit");
                self.too_much(at, &format!("gives a number of more than {limit}. Calculate with smaller numbers"))
            }
            Trouble::TooFine => self.too_much(
                at,
                "gives a fraction of thousands of digits, which takes too long. Round on the way to it, for example \
                 round(1.0375^30, 20) * 12, or calculate it in parts",
            ),
        })
    }

    /// At the parser's place stands something where a number should.
    fn no_operand(&mut self) -> ToolError {
        let at = self.at;
        match self.peek() {
            None if self.text.trim_matches(|c: char| c == '=' || c.is_whitespace()).is_empty() => {
                invalid("the expression is empty. Write one, for example 84.50 + 212.00")
            }
            None => invalid(format!(
                "the expression ends {} where a number is missing. Add the number, or leave out what stands before it",
                self.place(at)
            )),
            Some(')' | '*' | '/' | '×' | '÷' | '·' | '⋅' | '∙' | '%' | '^') => {
                self.bad(at, "stands where a number is missing. Add the number before it, or leave this out")
            }
            Some(_) => self.no_part(at),
        }
    }

    /// At the parser's place stands something where an operator should, or the end.
    fn no_operator(&mut self) -> ToolError {
        let at = self.at;
        match self.peek() {
            Some(')') => self.bad(at, "closes a bracket that was never opened. Leave it out, or add the '('"),
            _ if self.begins_operand() => self
                .bad(at, "has no operator before it. Put + - * or / there; a number has no spaces or separators in it"),
            _ => self.no_part(at),
        }
    }

    fn no_part(&self, at: usize) -> ToolError {
        let way_out = match self.token(at) {
            "," | "'" | "’" | "_" => {
                "is no part of a number. Write numbers like 1234.50: no thousands separators, and '.' before the \
                 decimals"
            }
            "=" | "<" | ">" | "≈" => {
                "is no part of an expression. Leave it out and all behind it: you get the result"
            }
            "[" | "]" | "{" | "}" => "is no part of an expression. Use ( ) only, for example sum(84.50, 212.00)",
            _ => "is no part of an expression. Write numbers only, for example 84.50 + 212.00",
        };
        self.bad(at, way_out)
    }

    fn unclear_comma(&self, at: usize) -> ToolError {
        self.bad(
            at,
            "may stand inside a number or between two. Between two numbers put a space behind it: sum(100, 200). \
             Inside a number leave it out: 1234.50",
        )
    }

    fn bad(&self, at: usize, what: &str) -> ToolError {
        invalid(self.said(at, what))
    }

    fn too_much(&self, at: usize, what: &str) -> ToolError {
        over_limit(self.said(at, what))
    }

    /// What is the matter with the token at that place.
    fn said(&self, at: usize, what: &str) -> String {
        format!("'{}' {} {what}", excerpt(self.token(at).chars(), 24), self.place(at))
    }

    fn place(&self, at: usize) -> String {
        const AROUND: usize = 16;
        let (before, behind) = self.text.split_at(at);
        let count = before.chars().count();
        let begin = excerpt(before.chars().skip(count.saturating_sub(AROUND)), AROUND);
        let cut = if count > AROUND { "…" } else { "" };
        format!("at character {} (in \"{cut}{begin}{}\")", count + 1, excerpt(behind.chars(), AROUND))
    }
}

/// At most so many characters, on one line.
fn excerpt(mut chars: impl Iterator<Item = char>, most: usize) -> String {
    let plain = |c: char| if c.is_control() || c.is_whitespace() { ' ' } else { c };
    let mut text: String = chars.by_ref().take(most).map(plain).collect();
    if chars.next().is_some() {
        text.push('…');
    }
    text
}

/// Whether the comma between these, with a digit on each side, may be one inside a number: before
/// thousands or, as in many countries, before decimals.
fn is_in_number(before: &str, behind: &str) -> bool {
    let stem = before.trim_end_matches(|c: char| c.is_ascii_digit());
    let rest = behind.trim_start_matches(|c: char| c.is_ascii_digit());
    let (left, right) = (before.len() - stem.len(), behind.len() - rest.len());
    let has_point = stem.ends_with('.');
    let thousands = !has_point && left <= 3 && right == 3;
    let decimals = (!has_point || left == 3) && right == 2 && !rest.starts_with('.');
    thousands || decimals
}
