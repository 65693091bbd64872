//! Sealing again what is stored: with another key, for the first time, or no longer.
//!
//! Values are read and written a few at a time, each few in a transaction, so that other writers come in
//! between. What was done stays done: after an interruption, a second run passes over it.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Integer, Text};
use posse_core::port::{Resealed, Result};
use posse_core::store::Done;
use posse_core::store::memory::{vectors, words};
use posse_core::store::seal::{Keys, Place, Row as PlaceRow};

use super::meta;
use super::writer::{Transaction, Writer};

/// Values in one transaction.
const AT_ONCE: i64 = 200;
/// Roughly the bytes they take, for the order among writers.
const BYTES: usize = 1 << 20;

struct Column {
    /// Its table's name and its own, as its [`Place`] has them.
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// Its rows are found by two numbers, and its place has these three.
    Numbered { key: [&'static str; 2], place: [&'static str; 3] },
    /// Both are a name. There are few of these.
    Named(&'static str),
    /// The same, of bytes.
    Bytes { key: [&'static str; 2], place: [&'static str; 3] },
    /// Contents, known by their hash.
    Contents,
}

const fn numbered(name: &'static str, key: [&'static str; 2], place: [&'static str; 3]) -> Column {
    Column { name, kind: Kind::Numbered { key, place } }
}

const fn named(name: &'static str, key: &'static str) -> Column {
    Column { name, kind: Kind::Named(key) }
}

const COLUMNS: [Column; 15] = [
    numbered("job_data.payload", ["job_id", "0"], ["job_id", "0", "0"]),
    numbered("jobs.output", ["id", "0"], ["id", "0", "0"]),
    numbered("jobs.reason", ["id", "0"], ["id", "0", "0"]),
    numbered("attempts.reason", ["job_id", "token"], ["job_id", "0", "0"]),
    numbered("progress.text", ["job_id", "0"], ["job_id", "0", "0"]),
    numbered("steps.data", ["job_id", "seq"], ["job_id", "seq", "0"]),
    numbered("annotations.text", ["id", "0"], ["job_id", "0", "0"]),
    numbered("asks.text", ["id", "0"], ["job_id", "seq", "position"]),
    numbered("asks.answer", ["id", "0"], ["job_id", "seq", "position"]),
    numbered("memory_items.content", ["id", "0"], ["created_at", "seq", "0"]),
    numbered("memory_items.metadata", ["id", "0"], ["created_at", "seq", "0"]),
    numbered("memory_items.reason", ["id", "0"], ["created_at", "seq", "0"]),
    numbered("session_summaries.text", ["session_id", "through_job"], ["session_id", "through_job", "0"]),
    named("schedules.job", "name"),
    named("breakers.reason", "endpoint"),
];

const CONTENTS: Column = Column { name: "blobs.bytes", kind: Kind::Contents };

const EMBEDDINGS: Column = Column {
    name: "memory_items.embedding",
    kind: Kind::Bytes { key: ["id", "0"], place: ["created_at", "seq", "0"] },
};

/// How far it is in a column.
#[derive(Debug, Clone, Copy)]
struct Cursor([i64; 2]);

#[derive(QueryableByName)]
struct Stored {
    #[diesel(sql_type = BigInt)]
    a: i64,
    #[diesel(sql_type = BigInt)]
    b: i64,
    #[diesel(sql_type = BigInt)]
    p: i64,
    #[diesel(sql_type = BigInt)]
    q: i64,
    #[diesel(sql_type = BigInt)]
    r: i64,
    #[diesel(sql_type = Binary)]
    name: Vec<u8>,
    #[diesel(sql_type = Binary)]
    value: Vec<u8>,
}

/// Writes every value as `target` stores it, and tells `progress` of each column and the values written so far. Values
/// that need no change are not written.
///
/// What was in the file before is still in its free space then: [`compact`](super::compact) is to follow.
/// No other process should write meanwhile: one with other keys would go on to seal with those.
pub(super) async fn reseal(
    writer: &Writer,
    target: Keys,
    progress: &mut (dyn for<'a> FnMut(&'a str, u64) + Send),
) -> Result<Resealed> {
    let mut total = Resealed::default();
    for column in COLUMNS.iter().chain([&CONTENTS, &EMBEDDINGS]) {
        let mut cursor = Some(Cursor([i64::MIN; 2]));
        while let Some(from) = cursor {
            let target = target.clone();
            let (some, next) = writer.run(BYTES, false, move |tx| column.reseal(tx, &target, from)).await?;
            total.values += some.values;
            total.closed += some.closed;
            total.first_closed = total.first_closed.take().or(some.first_closed);
            cursor = next;
            progress(column.name, total.values);
        }
    }
    // What is searched for in the clear, and what texts are known by, follow from them.
    let mut after = Some(0);
    while let Some(from) = after {
        let target = target.clone();
        after = writer.run(BYTES, false, move |tx| words::reindex(tx.db, &target, from)).await?;
    }
    writer.run(BYTES, false, |tx| vectors::begin_anew(tx.db)).await?;
    loop {
        let target = target.clone();
        if !writer.run(BYTES, false, move |tx| vectors::fill(tx.db, &target)).await? {
            break;
        }
    }
    let sealing = target.sealing().map(str::to_owned);
    writer.run(1, false, move |tx| meta::set_sealing_key(&mut tx.db.0, sealing.as_deref())).await?;
    Ok(total)
}

impl Column {
    fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or_default()
    }

    /// Writes some values anew, from `from` on, and tells where to go on.
    fn reseal(&self, tx: &mut Transaction<'_>, target: &Keys, from: Cursor) -> Done<(Resealed, Option<Cursor>)> {
        let (table, column) = self.parts();
        let ([a, b], [p, q, r], name) = match self.kind {
            Kind::Numbered { key, place } | Kind::Bytes { key, place } => (key, place, "x''"),
            Kind::Named(name) => (["0", "0"], ["0"; 3], name),
            Kind::Contents => (["rowid", "0"], ["0"; 3], "hash"),
        };
        // Those that are not sealed as they should be.
        let is = if target.seals() { "<>" } else { "=" };
        let prefix = target.prefix().into_bytes();
        let rows: Vec<Stored> = diesel::sql_query(format!(
            "SELECT {a} AS a, {b} AS b, coalesce({p}, 0) AS p, coalesce({q}, 0) AS q, {r} AS r,
                    CAST({name} AS BLOB) AS name, CAST({column} AS BLOB) AS value
             FROM {table} WHERE ({a}, {b}) > (?, ?) AND {column} IS NOT NULL
                AND substr(CAST({column} AS BLOB), 1, ?) {is} ? ORDER BY 1, 2 LIMIT ?"
        ))
        .bind::<BigInt, _>(from.0[0])
        .bind::<BigInt, _>(from.0[1])
        .bind::<Integer, _>(i32::try_from(prefix.len()).unwrap_or(i32::MAX))
        .bind::<Binary, _>(&prefix)
        .bind::<BigInt, _>(if matches!(self.kind, Kind::Named(_)) { -1 } else { AT_ONCE })
        .load(&mut tx.db.0)?;
        let more = rows.len() as i64 == AT_ONCE && !matches!(self.kind, Kind::Named(_));
        let next = rows.last().map(|row| Cursor([row.a, row.b])).filter(|_| more);
        let mut done = Resealed::default();
        for row in rows {
            let numbers = [row.p, row.q, row.r];
            let place = match self.kind {
                Kind::Numbered { .. } | Kind::Bytes { .. } => {
                    Place { column: self.name, row: PlaceRow::Numbers(numbers) }
                }
                Kind::Named(_) | Kind::Contents => Place { column: self.name, row: PlaceRow::Name(&row.name) },
            };
            match self.sealed_anew(tx.keys, target, place, row.value) {
                Ok(value) => {
                    self.write(tx, [row.a, row.b], &row.name, value)?;
                    done.values += 1;
                }
                Err(why) => {
                    done.closed += 1;
                    done.first_closed.get_or_insert(format!("a value of {} is {why}", self.name));
                }
            }
        }
        Ok((done, next))
    }

    /// A value as it should be stored.
    fn sealed_anew(&self, keys: &Keys, target: &Keys, place: Place<'_>, value: Vec<u8>) -> Result<Vec<u8>, String> {
        if matches!(self.kind, Kind::Contents | Kind::Bytes { .. }) {
            let opened = keys.open_bytes(place, value).map_err(|closed| closed.to_string())?;
            return Ok(target.seal_bytes(place, &opened).into_owned());
        }
        let stored = String::from_utf8(value).map_err(|_| "no text".to_owned())?;
        let opened = keys.open_text(place, &stored).map_err(|closed| closed.to_string())?;
        Ok(target.seal_text(place, opened.into_owned()).into_bytes())
    }

    fn write(&self, tx: &mut Transaction<'_>, [a, b]: [i64; 2], name: &[u8], value: Vec<u8>) -> Done<()> {
        let (table, column) = self.parts();
        match self.kind {
            Kind::Numbered { key: [first, second], .. } | Kind::Bytes { key: [first, second], .. } => {
                let new = if matches!(self.kind, Kind::Bytes { .. }) { "?" } else { "CAST(? AS TEXT)" };
                let sql = format!("UPDATE {table} SET {column} = {new} WHERE {first} = ? AND {second} = ?");
                let bound = diesel::sql_query(sql).bind::<Binary, _>(value).bind::<BigInt, _>(a).bind::<BigInt, _>(b);
                bound.execute(&mut tx.db.0)?;
            }
            Kind::Named(key) => {
                let sql = format!("UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {key} = ?");
                let name = String::from_utf8_lossy(name).into_owned();
                diesel::sql_query(sql).bind::<Binary, _>(value).bind::<Text, _>(name).execute(&mut tx.db.0)?;
            }
            Kind::Contents => {
                let sql = format!("UPDATE {table} SET {column} = ? WHERE rowid = ?");
                diesel::sql_query(sql).bind::<Binary, _>(value).bind::<BigInt, _>(a).execute(&mut tx.db.0)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sealed_column_is_forgotten() {
        let (mut table, mut named) = ("", std::collections::BTreeSet::new());
        for line in include_str!("schema.rs").lines() {
            let line = line.trim();
            if let Some((name, _)) = line.strip_suffix(" {").and_then(|head| head.split_once(" (")) {
                table = name;
            } else if let Some((name, _)) = line.split_once(" -> ").filter(|(_, kind)| kind.contains("SealedText")) {
                named.insert(format!("{table}.{name}"));
            }
        }
        let listed: std::collections::BTreeSet<_> = COLUMNS.iter().map(|column| column.name.to_owned()).collect();
        assert_eq!(listed, named);
    }
}
