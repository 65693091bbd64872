//! `calculate`: exact arithmetic, because language models cannot add.

mod number;
mod parser;

use posse_core::text::has_too_many;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::over_limit;
use parser::Parser;

const MAX_EXPRESSION: usize = 10_000;
/// More of a long expression is not repeated in the answer.
const MAX_SHOWN: usize = 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// Numbers with + - * / % ^ ( ) and sum, avg, min, max, count, round(x, places); no currency signs, units
    /// or thousands separators. For example: 84.50 + 212.00, or round(sum(19.99, 5.01) * 19%, 2).
    #[schemars(length(min = 1))]
    expression: String,
}

pub(super) fn tool() -> FnTool {
    FnTool::new(
        "calculate",
        "Calculates an expression exactly. Use it for every total, difference, average and percentage instead of \
         working them out yourself.",
        EffectClass::Pure,
        |_cx: ToolContext, args: Args| async move { calculate(&args.expression) },
    )
    .in_own_words()
}

fn calculate(expression: &str) -> Result<ToolOutput, ToolError> {
    if expression.len() > MAX_EXPRESSION {
        return Err(over_limit(format!(
            "the expression {}. Calculate it in parts, then add up the results",
            has_too_many(expression.len(), "byte", MAX_EXPRESSION)
        )));
    }
    // A formula may begin as in a spreadsheet, or end as on paper.
    let text = expression.trim_end().trim_end_matches('=');
    let body = text.trim_start().trim_start_matches('=');
    let mut parser = Parser::new(text, text.len() - body.len());
    let result = parser.all()?;
    let (shown, is_all) = result.shown();
    let sign = if is_all { '=' } else { '≈' };
    let note = if parser.has_remainder { " (% is the remainder of a division)" } else { "" };
    Ok(format!("{} {sign} {shown}{note}", shortened(body)).into())
}

/// On one line, and without the middle of a long one.
fn shortened(expression: &str) -> String {
    let line = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = line.chars().count();
    if count <= MAX_SHOWN {
        return line;
    }
    let head: String = line.chars().take(MAX_SHOWN / 2).collect();
    let tail: String = line.chars().skip(count - MAX_SHOWN / 2).collect();
    format!("{head} … {tail}")
}
