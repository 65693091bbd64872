//! Exact arithmetic, and what is told of an expression that has none.
#![allow(clippy::unwrap_used)]

use futures::FutureExt as _;
use posse_core::tool::ToolErrorCategory::{self, InvalidArguments, LimitExceeded};
use posse_core::tool::{ToolError, Tools as _};
use posse_infra::tool::ToolRegistry;
use proptest::prelude::*;
use serde_json::json;

use crate::support::tools::context;

/// The longest expression, and the deepest, that is calculated.
const MAX_EXPRESSION: usize = 10_000;
const MAX_DEPTH: usize = 64;

fn calculate(expression: &str) -> Result<String, ToolError> {
    let tool = ToolRegistry::builtin().get("calculate").unwrap();
    let called = tool.call(&context(), json!({"expression": expression})).now_or_never();
    called.expect("it waits for nothing").map(|output| output.text)
}

fn answer(expression: &str) -> String {
    calculate(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
}

/// What stands behind the expression.
fn result(expression: &str) -> String {
    let answer = answer(expression);
    answer.rsplit_once(['=', '≈']).unwrap().1.trim().to_owned()
}

/// The same, if it is exact.
fn exactly(expression: &str) -> Option<String> {
    answer(expression).rsplit_once(" = ").map(|(_, result)| result.to_owned())
}

fn error(expression: &str) -> (ToolErrorCategory, String) {
    let error = calculate(expression).expect_err(expression);
    (error.category, error.message)
}

#[test]
fn the_answer_repeats_the_question() {
    let cases = [
        ("84.50 + 212.00 + 46.50 + 27.00", "84.50 + 212.00 + 46.50 + 27.00 = 370"),
        (" =0.1\n+ 0.2 = ", "0.1 + 0.2 = 0.3"),
        ("10 / 3", "10 / 3 ≈ 3.33333333333333"),
        ("round(10 / 3, 2)", "round(10 / 3, 2) = 3.33"),
        ("17 % 5", "17 % 5 = 2 (% is the remainder of a division)"),
    ];
    for (expression, whole) in cases {
        assert_eq!(answer(expression), whole);
    }
    let long = vec!["1"; 2000].join("+");
    let answer = answer(&long);
    assert!(answer.ends_with("+1 = 2000") && answer.contains(" … ") && answer.len() < 1100, "{answer}");
}

#[test]
fn results() {
    let cases = [
        ("42", "42"),
        ("007.50", "7.5"),
        (".5 + 2.", "2.5"),
        ("2 + 3 * 4 - 10 / 4", "11.5"),
        ("(2 + 3) * 4", "20"),
        ("100 - 20 - 30", "50"),
        ("100 / 5 / 2", "10"),
        ("1 - -1 + +1 - (-(1))", "4"),
        ("-0", "0"),
        ("0.00 * -5", "0"),
        ("3 x 4 X 2 × 2", "48"),
        ("3x4x(1)x max(1)", "12"),
        ("1200 ÷ 8 − 50 – 25", "75"),
        ("2^10 + 2**3", "1032"),
        ("2^3^2", "512"),
        ("-2^2", "-4"),
        ("2^-2", "0.25"),
        ("0^0", "1"),
        ("1.05^10", "1.62889462677744140625"),
        ("1000 * 1.0375^30", "3017.47139330603"),
        ("1.01^-360 * 100", "2.78166892093551"),
        ("17.5 % 5", "2.5 (% is the remainder of a division)"),
        ("-7 % 3", "2 (% is the remainder of a division)"),
        ("sum(84.50, 212.00, 46.50, 27.00)", "370"),
        ("SUM(1, sum(2, 3)) * 2", "12"),
        ("sum(1,2,3) + sum(1.25,12.50) + round(2.345,2)", "22.1"),
        ("avg(1, 2, 4, 5) + mean(3) + Average(1, 2)", "7.5"),
        ("avg(1, 1, 2)", "1.33333333333333"),
        ("min(3, -1, 2) + max(3, -1, 2)", "2"),
        ("count(5, 5, 5)", "3"),
        ("round(2.5)", "3"),
        ("round(-2.345, 2)", "-2.35"),
        ("round(0.125 / 3 * 3, 2)", "0.13"),
        ("1 / 3 * 3", "1"),
        ("1 / 3 * 3 - 1", "0"),
        ("7 / 7 / 3 * 3 + 6 % 4", "3 (% is the remainder of a division)"),
        ("79228162514264337593543950335 - 1", "79228162514264337593543950334"),
        ("70000000000000000000000000001 - 0.5", "70000000000000000000000000000.5"),
        ("0.0000000000000000000000000001 * 10", "0.000000000000000000000000001"),
        ("1000000 * 0.000001", "1"),
        ("0.5^1000", "0"),
        ("1 / 10^20 / 3", "0.00000000000000000000333333333333333"),
        ("1 / 3 + 2 / 3 - 1", "0"),
        ("round(10^20 / 3, 2)", "33333333333333333333.33"),
        ("round(10^20 / 3 - 33333333333333333333, 10)", "0.3333333333"),
        ("2^(1 / 3 * 3)", "2"),
        ("10 / 3 % 2", "1.33333333333333 (% is the remainder of a division)"),
        ("0.5^100 * 2^80", "0.00000095367431640625"),
        ("1 + 10^-30 - 1", "0.000000000000000000000000000001"),
        ("79228162514264337593543950335 + 1", "79228162514264337593543950336"),
        ("-2 * 10^59", "-200000000000000000000000000000000000000000000000000000000000"),
        ("2^199 - 0.5", "803469022129495000000000000000000000000000000000000000000000"),
        ("200 * 19%", "38"),
        ("19% of 200", "38"),
        ("2 * 19 % Of 200 / 4 + 1", "20"),
        ("-19% x 3", "-0.57"),
        ("100 / 50%", "200"),
        ("50% - 12.5%", "0.375"),
        ("round(19.99 * 119%, 2)", "23.79"),
        ("200 + 19% of 200", "238"),
    ];
    for (expression, wanted) in cases {
        assert_eq!(result(expression), wanted, "{expression}");
    }
}

#[test]
fn what_is_rounded_is_not_said_to_be_equal() {
    for expression in ["10 / 3", "1.0375^30", "sum(1 / 3, 2)", "10^28 / 3", "2^199 - 0.5", "0.5^1000"] {
        assert!(answer(expression).contains(" ≈ "), "{expression}");
    }
    for expression in
        ["10 / 4", "1 / 3 * 3", "1 / 1024", "1.0375^4", "12345678901234 * 12345678901234", "round(1 / 3, 20)"]
    {
        assert!(answer(expression).contains(" = "), "{expression}");
    }
}

#[test]
fn a_mistake_is_named_with_its_place_and_the_way_out() {
    let cases = [
        (
            "12$.50 + 3",
            "'$' at character 3 (in \"12$.50 + 3\") is no part of an expression. \
             Write numbers only, for example 84.50 + 212.00",
        ),
        (
            "84.50 +",
            "the expression ends at character 8 (in \"84.50 +\") where a number is missing. \
             Add the number, or leave out what stands before it",
        ),
        (
            "1 + 2 / (3 - 3)",
            "'/' at character 7 (in \"1 + 2 / (3 - 3)\") divides by zero: what stands behind it is 0. \
             Correct that number, or do not divide by it",
        ),
        (
            "111111 + 222222 + 333333 € + 444444 + 555555",
            "'€' at character 26 (in \"…222222 + 333333 € + 444444 + 555…\") is no part of an expression. \
             Write numbers only, for example 84.50 + 212.00",
        ),
    ];
    for (expression, message) in cases {
        assert_eq!(error(expression), (InvalidArguments, message.into()));
    }
}

#[test]
fn refusals() {
    let cases = [
        ("", "is empty"),
        (" = ", "is empty"),
        ("$84.50", "'$' at character 1 (in \"$84.50\") is no part"),
        ("84 EUR + 3", "'EUR' at character 4"),
        ("1e5", "'e5' at character 2"),
        ("1,234.50 + 2", "no thousands separators"),
        ("84,50 + 2", "'.' before the decimals"),
        ("1_000", "'_' at character 2"),
        ("1'000", "''' at character 2"),
        ("1 234.50", "'234.50' at character 3 (in \"1 234.50\") has no operator before it"),
        ("1.234.567", "more than one decimal point"),
        ("1 . 2", "has no operator"),
        (".", "'.' at character 1"),
        ("sum(1,234.50, 2)", "',' at character 6 (in \"sum(1,234.50, 2)\") may stand inside a number"),
        ("sum(120,340,560)", "sum(100, 200)"),
        ("sum(84,50, 3)", "may stand inside"),
        ("sum(1.234,56, 3)", "may stand inside"),
        ("sum(1,5, 2,5)", "may stand inside"),
        ("200 + 19%", "'%' at character 9 (in \"200 + 19%\") does not say of what"),
        ("19% + 3", "200 + 19% of 200"),
        ("5 % -3", "does not say of what"),
        ("19 of 200", "'of' at character 4"),
        ("19%%", "where a number is missing"),
        ("2 + 2 = 4", "you get the result"),
        ("sum([1, 2])", "Use ( ) only"),
        ("sqrt(2)", "'sqrt' at character 1 (in \"sqrt(2)\") is no number and no function"),
        ("total", "There are sum(a, b)"),
        ("sum 1", "needs its numbers in ( )"),
        ("sum()", "has nothing in its ( )"),
        ("sum(1, )", "')' at character 8"),
        ("(1 + 2", "'(' at character 1 (in \"(1 + 2\") is never closed"),
        ("1 + 2)", "never opened"),
        ("()", "')' at character 2"),
        ("2(3)", "'(' at character 2 (in \"2(3)\") has no operator"),
        ("2 sum(3)", "'sum' at character 3"),
        ("* 2", "a number is missing"),
        ("2 *** 3", "'*' at character 5"),
        ("2^0.5", "whole number from -1000 to 1000"),
        ("2^1001", "whole number"),
        ("0^-1", "divides by zero"),
        ("5 % 0", "divides by zero"),
        ("round(1, 21)", "0 to 20"),
        ("round(1, -1)", "0 to 20"),
        ("round(1, 2, 3)", "takes one number"),
        ("5²", "'²' at character 2"),
        ("\u{7}", "' ' at character 1"),
    ];
    for (expression, part) in cases {
        let (category, message) = error(expression);
        assert!(category == InvalidArguments && message.contains(part), "{expression}: {message}");
    }
}

#[test]
fn limits() {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(result(&nested(MAX_DEPTH)), "1");
    assert_eq!(result(&format!("{}1", "-".repeat(MAX_EXPRESSION - 1))), "-1");
    let cases = [
        (nested(MAX_DEPTH + 1), "'(' at character 65"),
        (vec!["2"; MAX_DEPTH + 2].join("^"), "nested more than 64 deep"),
        ("1".repeat(MAX_EXPRESSION), "'111111111111111111111111…' at character 1"),
        ("1".repeat(MAX_EXPRESSION + 1), "has 10,001 bytes; at most 10,000"),
        (format!("{} + 1", "9".repeat(60)), "'+' at character 62"),
        ("2 * 10^59 * 10".into(), "'*' at character 11"),
        ("10^60".into(), "'^' at character 3 (in \"10^60\") gives a number of more than 60 digits"),
        ("123456789^999".into(), "gives a number of more than 60 digits"),
        (format!("sum({}, 1)", "9".repeat(60)), "'sum' at character 1"),
        (format!("0.{}1", "0".repeat(60)), "more than 60 digits"),
        (format!("(1 + 10^-50)^{}", 500), "'^' at character 13"),
        ((0..900).map(|n| format!("1/{}", 9001 + 2 * n)).collect::<Vec<_>>().join("+"), "Round on the way to it"),
    ];
    for (expression, part) in cases {
        let (category, message) = error(&expression);
        assert!(category == LimitExceeded && message.contains(part), "{message}");
        assert!(message.len() < 400, "{message}");
    }
}

/// Hundredths as people write them.
fn money(cents: i64) -> String {
    format!("{}{}.{:02}", if cents < 0 { "-" } else { "" }, cents.abs() / 100, cents.abs() % 100)
}

fn as_decimal(unscaled: i128, scale: u32) -> String {
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale as usize + 1);
    let (whole, behind) = digits.split_at(digits.len() - scale as usize);
    let sign = if unscaled < 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{behind}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

proptest! {
    #[test]
    fn sums_of_money_are_exact(cents in proptest::collection::vec(-10_000_000_000i64..10_000_000_000, 1..60)) {
        let wanted = as_decimal(cents.iter().map(|n| i128::from(*n)).sum(), 2);
        let texts: Vec<_> = cents.iter().map(|n| money(*n)).collect();
        for expression in [texts.join(" + "), format!("sum({})", texts.join(", "))] {
            prop_assert_eq!(exactly(&expression), Some(wanted.clone()));
        }
    }

    #[test]
    fn products_of_money_are_exact(a in -10_000_000_000i64..10_000_000_000, b in -10_000_000_000i64..10_000_000_000) {
        let wanted = as_decimal(i128::from(a) * i128::from(b), 4);
        prop_assert_eq!(exactly(&format!("{} * {}", money(a), money(b))), Some(wanted));
    }

    #[test]
    fn an_equals_sign_is_never_a_lie(
        a in any::<i64>(), b in any::<i64>(), a_scale in 0u32..=28, b_scale in 0u32..=28, sign in "[+*/]",
    ) {
        let (x, y) = (as_decimal(a.into(), a_scale), as_decimal(b.into(), b_scale));
        if let Ok(answer) = calculate(&format!("({x}) {sign} ({y})"))
            && let Some((_, result)) = answer.rsplit_once(" = ")
        {
            // Turned round: what was done can be undone, without a digit lost.
            let back = match sign.as_str() {
                "+" => format!("({result}) - ({y})"),
                "*" if b != 0 => format!("({result}) / ({y})"),
                "/" => format!("({result}) * ({y})"),
                _ => return Ok(()),
            };
            prop_assert_eq!(exactly(&back), Some(x), "{}", answer);
        }
    }

    #[test]
    fn no_text_breaks_it(text in any::<String>(), near in "([0-9]{1,30}|[-+*/%^(),.x= ]|round\\(|sum\\(|[a-z€²]){0,60}") {
        for expression in [text, near] {
            if let Err(error) = calculate(&expression) {
                prop_assert!(error.message.len() < 600, "{}", error.message);
            }
        }
    }
}
