//! `query_tables`: SQL over the tables that the workspace's files make, because language models can write a question but
//! neither count nor add up what they read.
//!
//! Each call loads the tables that it names into a database of its own in memory. A query can reach nothing else: it is
//! one SELECT, files cannot be attached, and it ends after a time.

use std::fmt::Write;
use std::time::{Duration, Instant};

use posse_core::text::plural;
use posse_core::tool::{EffectClass, ToolContext, ToolError, ToolOutput};
use regex::Regex;
use rusqlite::limits::Limit;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, params_from_iter};
use schemars::JsonSchema;
use serde::Deserialize;

use super::FnTool;
use super::failure::{check, failed, invalid, missing, over_limit};
use super::survey::{Limits, files};
use super::tables::{Cell, Source, Table, tables};

/// What is read to find the tables. Held as cells it takes several times its length, for each call that runs.
const READ: Limits =
    Limits { files: 5000, visited: 50_000, time: Duration::from_secs(10), head: 16 << 20, read: 32 << 20 };
/// How long the query itself may take, and how often it is looked whether it has to end.
const MAX_TIME: Duration = Duration::from_secs(4);
const CHECK_EVERY: i32 = 10_000;
/// No value may become longer.
const MAX_VALUE: i32 = 1 << 20;
const MAX_SQL: usize = 10_000;
/// How many rows are shown, and how much text at most.
const MAX_ROWS: usize = 200;
const MAX_SHOWN: usize = 16 * 1024;
/// Most rows of a table, or lines, that are told where none fits, and how much of a line.
const MAX_NEAR: usize = 5;
const MAX_LINE: usize = 200;
/// How many rows show what a table is like.
const MAX_FIRST: usize = 3;
/// For how many texts of a query all files are looked through.
const MAX_WANTED: usize = 8;
/// Most tables that an error names.
const MAX_NAMED: usize = 20;

/// A table of every line of every text.
const LINES: &str = "lines";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// One SELECT in SQLite's SQL. For example: SELECT sum(price) FROM orders WHERE customer = 'Reis'
    #[schemars(length(min = 1))]
    sql: String,
}

pub(super) fn tool() -> FnTool {
    FnTool::blocking(
        "query_tables",
        "Counts, adds up, compares and picks rows of the tables in the workspace by SQL. Tables are CSV files, Markdown \
         tables, JSON lists, folders of files with lines like 'Owner: Reis', and lines(file, number, line) of all texts.",
        EffectClass::Pure,
        query_tables,
    )
}

fn query_tables(cx: &ToolContext, args: Args) -> Result<ToolOutput, ToolError> {
    let sql = args.sql.trim().trim_end_matches(';');
    if sql.len() > MAX_SQL {
        return Err(over_limit(format!("the query has {} and may have {MAX_SQL}", plural(sql.len() as u64, "byte"))));
    }
    let found = files(cx, &READ);
    check(&cx.stop)?;
    let sources: Vec<_> = found.files.iter().map(Source::of).collect();
    let tables = tables(&sources);
    let sql = with_names(sql, &tables);
    let connection =
        load(&sql, &tables, &sources).map_err(|error| failed(format!("the tables could not be loaded: {error}")))?;
    let (stop, began) = (cx.stop.clone(), Instant::now());
    let is_over = move || stop.reason().is_some() || began.elapsed() > MAX_TIME;
    connection.progress_handler(CHECK_EVERY, Some(is_over)).map_err(|error| failed(error.to_string()))?;
    let shown =
        answer(&connection, &sql, &tables, &sources).map_err(|error| explained(error, cx, &sql, &tables, &sources))?;
    let cut = tables.iter().filter(|table| table.is_cut && mentions(&sql, &table.name));
    let notes = cut.map(|table| {
        format!("\n({} is too long: only its first {} were read)", table.path, plural(table.rows.len() as u64, "row"))
    });
    let is_cut = mentions(&sql, LINES) && sources.iter().any(|source| source.is_cut && !source.text.is_empty());
    let note = if is_cut { "\n(not all texts were read to their end: lines lacks some)" } else { "" };
    Ok(format!("{shown}{}{note}", notes.collect::<String>()).into())
}

/// The query with the name of a table where it has the path or name of a file.
fn with_names(sql: &str, tables: &[Table]) -> String {
    let mut out = sql.to_owned();
    for table in tables {
        let path = table.path.trim_end_matches('/');
        let own = path.rsplit('/').next().unwrap_or(path);
        let without_ending = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
        let dotted = without_ending.replace('/', ".");
        for written in [path, own, without_ending, dotted.as_str()] {
            if written.is_empty() || written == table.name {
                continue;
            }
            let pattern = format!(r#"(?i)\b(from|join)\s+["'`\[]?{}["'`\]]?(\s|\)|;|$)"#, regex::escape(written));
            if let Ok(pattern) = Regex::new(&pattern) {
                out = pattern.replace_all(&out, format!("${{1}} {}${{2}}", table.name)).into_owned();
            }
        }
    }
    out
}

fn mentions(sql: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    sql.to_lowercase().split(|c| !is_word(c)).any(|word| word == name)
}

fn load(sql: &str, tables: &[Table], sources: &[Source<'_>]) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_in_memory()?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE)?;
    let transaction = connection.transaction()?;
    for table in tables.iter().filter(|table| mentions(sql, &table.name)) {
        // Whoever asks for 'reis' means Reis.
        let columns = table.columns.iter().map(|column| format!("\"{}\" COLLATE NOCASE", column.name));
        let columns: Vec<_> = columns.collect();
        transaction.execute_batch(&format!("CREATE TABLE \"{}\" ({})", table.name, columns.join(", ")))?;
        let places = vec!["?"; columns.len()].join(", ");
        let mut insert = transaction.prepare(&format!("INSERT INTO \"{}\" VALUES ({places})", table.name))?;
        for row in &table.rows {
            insert.execute(params_from_iter(row.iter().map(value)))?;
        }
    }
    if mentions(sql, LINES) {
        transaction.execute_batch("CREATE TABLE lines (file COLLATE NOCASE, number, line COLLATE NOCASE)")?;
        let mut insert = transaction.prepare("INSERT INTO lines VALUES (?, ?, ?)")?;
        for source in sources {
            for (at, line) in source.text.lines().enumerate() {
                let line: &str = &line[..line.floor_char_boundary(MAX_VALUE as usize / 2)];
                insert.execute((source.path, at as i64 + 1, line))?;
            }
        }
    }
    transaction.commit()?;
    Ok(connection)
}

fn value(cell: &Cell) -> Value {
    match cell {
        Cell::Nothing => Value::Null,
        Cell::Integer(number) => Value::Integer(*number),
        Cell::Real(number) => Value::Real(*number),
        Cell::Text(text) => Value::Text(text.clone()),
    }
}

enum Unanswered {
    NotOneSelect,
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Unanswered {
    fn from(error: rusqlite::Error) -> Self {
        Unanswered::Sql(error)
    }
}

/// The rows as lines of text; a single value beside what it is.
fn answer(connection: &Connection, sql: &str, tables: &[Table], sources: &[Source<'_>]) -> Result<String, Unanswered> {
    let first = sql.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or_default();
    if !["select", "with", "values"].iter().any(|word| first.eq_ignore_ascii_case(word)) {
        return Err(Unanswered::NotOneSelect);
    }
    let mut statement = connection.prepare(sql)?;
    if !statement.readonly() {
        return Err(Unanswered::NotOneSelect);
    }
    let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
    let mut rows = statement.query([])?;
    let mut shown: Vec<Vec<String>> = Vec::new();
    let (mut bytes, mut more) = (0, 0_u64);
    while let Some(row) = rows.next()? {
        if shown.len() == MAX_ROWS || bytes > MAX_SHOWN {
            more += 1;
            continue;
        }
        let cells: Vec<_> = (0..names.len()).map(|at| row.get_ref(at).map(text)).collect::<Result<_, _>>()?;
        bytes += cells.iter().map(String::len).sum::<usize>();
        shown.push(cells);
    }
    if let ([row], [name]) = (&*shown, &*names) {
        return Ok(match &*row[0] {
            "" => format!("{name} = nothing (no row fits){}", near_misses(sql, tables, sources)),
            "0" => format!("{name} = 0{}", near_misses(sql, tables, sources)),
            cell => format!("{name} = {cell}"),
        });
    }
    if shown.is_empty() {
        return Ok(format!("no row fits{}", near_misses(sql, tables, sources)));
    }
    let mut out = format!("{}, {}:", plural(shown.len() as u64 + more, "row"), names.join(" | "));
    for row in &shown {
        let _ = write!(out, "\n{}", row.join(" | "));
    }
    if more > 0 {
        let _ = write!(out, "\n({more} more; ask for fewer with WHERE or LIMIT)");
    }
    Ok(out)
}

/// What may help who got nothing: rows that have a text of the query within a longer one, for whoever asks for `= 'Spain'`
/// means "Spain and Malta" as well; else lines of other files that have one; else what the rows of the table look like.
fn near_misses(sql: &str, tables: &[Table], sources: &[Source<'_>]) -> String {
    let texts = texts_of(sql);
    let asked: Vec<_> = tables.iter().filter(|table| mentions(sql, &table.name)).collect();
    let rows = rows_with(&texts, &asked);
    if !rows.is_empty() {
        return format!(". These rows of it have a text of the query; LIKE '%…%' finds a part of one:{rows}");
    }
    let lines = lines_with(&texts, sources);
    if !lines.is_empty() {
        return format!(". Other files have a text of the query:{lines}");
    }
    let first = |table: &&Table| table.rows.iter().take(MAX_FIRST).map(|row| told(table, row)).collect::<String>();
    let first = asked.iter().map(first).collect::<String>();
    if first.is_empty() { first } else { format!(". Its rows are like these:{first}") }
}

/// The texts that a query compares with, in small letters.
fn texts_of(sql: &str) -> Vec<String> {
    let texts = sql.split('\'').skip(1).step_by(2).map(|text| text.trim_matches('%').to_lowercase());
    texts.filter(|text| text.chars().count() > 1).collect()
}

fn rows_with(texts: &[String], tables: &[&Table]) -> String {
    let has = |cell: &Cell| match cell {
        Cell::Text(text) => texts.iter().any(|wanted| text.to_lowercase().contains(wanted)),
        _ => false,
    };
    let rows = |table: &&Table| {
        let rows = table.rows.iter().filter(|row| row.iter().any(has)).take(MAX_NEAR);
        rows.map(|row| told(table, row)).collect::<String>()
    };
    tables.iter().map(rows).collect()
}

fn told(table: &Table, row: &[Cell]) -> String {
    let cells = table.columns.iter().zip(row).map(|(column, cell)| format!("{} = {}", column.name, shown(cell)));
    format!("\n{}", cells.collect::<Vec<_>>().join(", "))
}

/// The lines that have one of these texts, or else a word of one that hardly any other line has: what is asked of a table may
/// stand in another file, under another name.
fn lines_with(texts: &[String], sources: &[Source<'_>]) -> String {
    let lines_with = |wanted: &str| {
        let lines = sources.iter().flat_map(|source| source.text.lines().map(|line| (source.path, line)));
        let has = |(_, line): &(&str, &str)| line.to_lowercase().contains(wanted);
        let lines: Vec<_> = lines.filter(has).take(MAX_NEAR + 1).collect();
        (1..=MAX_NEAR).contains(&lines.len()).then_some(lines)
    };
    let words = texts.iter().flat_map(|text| text.split_whitespace()).filter(|word| word.chars().count() > 2);
    let lines = texts.iter().map(String::as_str).chain(words).take(MAX_WANTED).find_map(lines_with);
    let told = |(path, line): (&str, &str)| format!("\n{path}: {}", &line[..line.floor_char_boundary(MAX_LINE)]);
    lines.into_iter().flatten().map(told).collect()
}

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Nothing => String::new(),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => text(ValueRef::Real(*number)),
        Cell::Text(text) => text.replace(['\n', '\r'], " "),
    }
}

/// A number with at most 15 digits: the sum of 0.1 and 0.2 is 0.3.
fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => {
            let digits = 15 - 1 - (number.abs().log10().floor() as i64).clamp(-300, 14);
            let text = format!("{number:.*}", usize::try_from(digits).unwrap_or(0));
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text,
            }
        }
        ValueRef::Text(bytes) => String::from_utf8_lossy(bytes).replace(['\n', '\r'], " "),
        ValueRef::Blob(bytes) => format!("({})", plural(bytes.len() as u64, "byte")),
    }
}

fn explained(error: Unanswered, cx: &ToolContext, sql: &str, tables: &[Table], sources: &[Source<'_>]) -> ToolError {
    let error = match error {
        Unanswered::NotOneSelect => return invalid("query_tables reads only: sql must be one SELECT"),
        Unanswered::Sql(error) => error,
    };
    if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
        let out =
            |()| over_limit(format!("the query took more than {}. Ask for less", plural(MAX_TIME.as_secs(), "second")));
        return check(&cx.stop).map(out).unwrap_or_else(|error| error);
    }
    let said = error.to_string();
    let said = said.split(" in SELECT").next().unwrap_or(&said).split(" in select").next().unwrap_or_default();
    let mut told: Vec<_> = tables.iter().take(MAX_NAMED).map(described).collect();
    told.push("lines(file, number, line)".to_owned());
    let more = if tables.len() > MAX_NAMED { " and more" } else { "" };
    let texts = texts_of(sql);
    let mut near = rows_with(&texts, &tables.iter().collect::<Vec<_>>());
    if near.is_empty() {
        near = lines_with(&texts, sources);
    }
    if !near.is_empty() {
        near.insert_str(0, ". What the files say of it:");
    }
    missing(format!(
        "the query cannot be run: {said}. The tables are: {}{more}. Ask with these names, or read the files{near}",
        told.join("; ")
    ))
}

fn described(table: &Table) -> String {
    let names: Vec<_> = table.columns.iter().map(|column| column.name.as_str()).collect();
    format!("{}({})", table.name, names.join(", "))
}
