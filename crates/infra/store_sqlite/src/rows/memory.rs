//! Rows of `memory_items`, and of `memory_words`, the index of their words.

use diesel::connection::SimpleConnection as _;
use diesel::dsl::max;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Nullable, Text as SqlText};
use diesel::{Connection, SqliteConnection};
use posse_core::job::JobId;
use posse_core::memory::words::AROUND;
use posse_core::memory::{MemoryFilter, MemoryId, MemoryStanding};
use posse_core::session::SessionId;
use posse_core::store::Done;
use posse_core::store::driver::{MemoryEnd, MemoryOf, MemoryRow, MemoryRows, WordsIn};
use posse_core::store::seal::Sealed;

use super::Rows;
use crate::literal::{IsCore, IsRemembered, update};
use crate::schema::{memory_items, memory_words, session_jobs};
use crate::sealed_text::Text;
use crate::{extension, migrate};

#[derive(Queryable, Selectable)]
#[diesel(table_name = memory_items)]
pub(super) struct Columns {
    id: i64,
    scope: String,
    tier: String,
    content: Sealed,
    metadata: Option<Sealed>,
    tags: String,
    job_id: Option<i64>,
    seq: Option<i64>,
    step: Option<i64>,
    author: String,
    tool: Option<String>,
    untrusted: bool,
    source: Option<String>,
    thread: Option<String>,
    place: Option<i64>,
    fingerprint: Option<Vec<u8>>,
    effect_key: Option<String>,
    version: i64,
    supersedes: Option<i64>,
    superseded_by: Option<i64>,
    ended_at: Option<i64>,
    reason: Option<Sealed>,
    revision: i64,
    created_at: i64,
    model: Option<String>,
    dimension: Option<i64>,
}

pub(super) fn read(row: Columns) -> MemoryRow {
    MemoryRow {
        id: row.id,
        scope: row.scope,
        tier: row.tier,
        content: row.content,
        metadata: row.metadata,
        tags: row.tags,
        job: row.job_id.map(JobId),
        seq: row.seq,
        step: row.step,
        author: row.author,
        tool: row.tool,
        untrusted: row.untrusted,
        source: row.source,
        spot: row.thread.zip(row.place),
        fingerprint: row.fingerprint,
        effect_key: row.effect_key,
        version: row.version,
        supersedes: row.supersedes,
        superseded_by: row.superseded_by,
        ended_at: row.ended_at,
        reason: row.reason,
        revision: row.revision,
        created_at: row.created_at,
        model: row.model,
        dimension: row.dimension,
    }
}

/// Numbers in one statement.
const IDS_AT_ONCE: usize = 500;

/// That an item fits a filter, whose values `fit!` binds from the third on.
pub(super) const FITS: &str = "(?3 OR memory_items.ended_at IS NULL)
    AND (?4 IS NULL OR memory_items.scope IN (SELECT value FROM json_each(?4)))
    AND NOT EXISTS (SELECT 1 FROM json_each(?5) AS wanted
        WHERE wanted.value NOT IN (SELECT value FROM json_each(memory_items.tags)))
    AND (?6 IS NULL OR memory_items.author = ?6)
    AND (?7 IS NULL OR memory_items.job_id = ?7)
    AND (?8 IS NULL OR memory_items.tool = ?8)
    AND (?9 IS NULL OR instr(', ' || memory_items.source || ', ', ', ' || ?9 || ', ') > 0)
    AND (?10 IS NULL OR memory_items.thread = ?10)
    AND (?11 IS NULL OR memory_items.untrusted = ?11)
    AND (?12 IS NULL OR memory_items.created_at >= ?12)
    AND (?13 IS NULL OR memory_items.created_at < ?13)
    AND (?14 IS NULL OR memory_items.tier = ?14)";

/// Binds what [`FITS`] asks for.
macro_rules! fit {
    ($query:expr, $filter:expr) => {{
        let filter: &MemoryFilter = $filter;
        let list = |words: &[String]| serde_json::to_string(words).unwrap_or_default();
        $query
            .bind::<Bool, _>(filter.ended)
            .bind::<Nullable<SqlText>, _>(filter.scopes.as_deref().map(list))
            .bind::<SqlText, _>(list(&filter.tags))
            .bind::<Nullable<SqlText>, _>(filter.author.as_deref())
            .bind::<Nullable<BigInt>, _>(filter.job.map(|job| job.0))
            .bind::<Nullable<SqlText>, _>(filter.tool.as_deref())
            .bind::<Nullable<SqlText>, _>(filter.source.as_deref())
            .bind::<Nullable<SqlText>, _>(filter.thread.as_deref())
            .bind::<Nullable<Bool>, _>(filter.untrusted)
            .bind::<Nullable<BigInt>, _>(filter.since)
            .bind::<Nullable<BigInt>, _>(filter.until)
            .bind::<Nullable<SqlText>, _>(filter.tier.map(posse_core::memory::Tier::as_str))
    }};
}

pub(super) use fit;

#[derive(QueryableByName)]
struct Scored {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Double)]
    score: f64,
}

#[derive(QueryableByName)]
pub(super) struct Numbered {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
}

#[derive(QueryableByName)]
struct Counted {
    #[diesel(sql_type = BigInt)]
    items: i64,
    #[diesel(sql_type = BigInt)]
    without_words: i64,
    #[diesel(sql_type = BigInt)]
    stray_words: i64,
}

pub(super) fn numbers(ids: &[MemoryId]) -> Vec<i64> {
    ids.iter().map(|id| id.0).collect()
}

impl MemoryRows for Rows {
    fn in_memory() -> Done<Self> {
        extension::register();
        let mut connection = SqliteConnection::establish(":memory:")?;
        migrate::in_memory(&mut connection)?;
        // The jobs of items are elsewhere; and what is sorted must not come into a file.
        connection.batch_execute("PRAGMA foreign_keys = 0; PRAGMA temp_store = memory")?;
        Ok(Rows(connection))
    }

    fn memory(&mut self, of: MemoryOf<'_>) -> Done<Vec<MemoryRow>> {
        let all = memory_items::table.select(Columns::as_select());
        let rows: Vec<Columns> = match of {
            MemoryOf::Ids([]) => Vec::new(),
            MemoryOf::Ids([id]) => all.filter(memory_items::id.eq(id.0)).load(&mut self.0)?,
            MemoryOf::Ids(ids) => all.filter(memory_items::id.eq_any(numbers(ids))).load(&mut self.0)?,
            MemoryOf::Effect(key) => all.filter(memory_items::effect_key.eq(key)).load(&mut self.0)?,
            MemoryOf::Same(scope, prints) => all
                .filter(memory_items::scope.eq(scope))
                .filter(memory_items::fingerprint.eq_any(prints))
                .filter(IsRemembered)
                .limit(1)
                .load(&mut self.0)?,
            MemoryOf::Spot(scope, thread, place) => all
                .filter(memory_items::scope.eq(scope))
                .filter(memory_items::thread.eq(thread))
                .filter(memory_items::place.eq(place))
                .filter(IsRemembered)
                .load(&mut self.0)?,
            MemoryOf::Thread(scope, thread, (first, last)) => all
                .filter(memory_items::scope.eq(scope))
                .filter(memory_items::thread.eq(thread))
                .filter(memory_items::place.between(first, last))
                .order((memory_items::place, memory_items::id))
                .load(&mut self.0)?,
            MemoryOf::Core(scopes) => {
                let core = all.filter(IsCore).order((memory_items::scope, memory_items::thread));
                match scopes {
                    None => core.load(&mut self.0)?,
                    Some(scopes) => core.filter(memory_items::scope.eq_any(scopes)).load(&mut self.0)?,
                }
            }
            MemoryOf::Beside(scope, thread, place) => {
                let of = memory_items::scope.eq(scope).and(memory_items::thread.eq(thread));
                let of = move || all.filter(of).filter(IsRemembered).limit(1);
                let before = of().filter(memory_items::place.lt(place)).order(memory_items::place.desc());
                let mut both: Vec<Columns> = before.load(&mut self.0)?;
                let after = of().filter(memory_items::place.gt(place)).order(memory_items::place);
                both.extend(after.load(&mut self.0)?);
                both
            }
            MemoryOf::Archived(job) => all
                .filter(memory_items::job_id.eq(job.0))
                .filter(memory_items::step.is_null())
                .order(memory_items::seq)
                .load(&mut self.0)?,
            MemoryOf::Listed(filter, before, most) => {
                let page = format!(
                    "SELECT memory_items.id AS id FROM memory_items WHERE memory_items.id < ?1 AND {FITS}
                     ORDER BY memory_items.id DESC LIMIT ?2"
                );
                let page = diesel::sql_query(page).bind::<BigInt, _>(before).bind::<BigInt, _>(i64::from(most));
                let ids: Vec<Numbered> = fit!(page, filter).load(&mut self.0)?;
                let mut rows = Vec::with_capacity(ids.len());
                for some in ids.chunks(IDS_AT_ONCE) {
                    let some = some.iter().map(|row| row.id);
                    let of = all.filter(memory_items::id.eq_any(some)).order(memory_items::id.desc());
                    rows.extend(of.load::<Columns>(&mut self.0)?);
                }
                rows
            }
            MemoryOf::After(after, most) => all
                .filter(memory_items::id.gt(after))
                .order(memory_items::id)
                .limit(i64::from(most))
                .load(&mut self.0)?,
            MemoryOf::Revised(after, most) => all
                .filter(memory_items::revision.gt(after))
                .order(memory_items::revision)
                .limit(i64::from(most))
                .load(&mut self.0)?,
        };
        Ok(rows.into_iter().map(read).collect())
    }

    fn insert_memory(&mut self, row: &MemoryRow) -> Done<MemoryId> {
        let (thread, place) = row.spot.as_ref().map(|(thread, place)| (thread.as_str(), *place)).unzip();
        let values = (
            memory_items::scope.eq(&row.scope),
            memory_items::tier.eq(&row.tier),
            memory_items::content.eq(Text(&row.content)),
            memory_items::metadata.eq(row.metadata.as_ref().map(Text)),
            memory_items::tags.eq(&row.tags),
            memory_items::job_id.eq(row.job.map(|job| job.0)),
            memory_items::seq.eq(row.seq),
            memory_items::step.eq(row.step),
            memory_items::author.eq(&row.author),
            memory_items::tool.eq(row.tool.as_deref()),
            memory_items::untrusted.eq(row.untrusted),
            memory_items::source.eq(row.source.as_deref()),
            memory_items::thread.eq(thread),
            memory_items::place.eq(place),
            memory_items::fingerprint.eq(row.fingerprint.as_deref()),
            memory_items::effect_key.eq(row.effect_key.as_deref()),
            memory_items::version.eq(row.version),
            memory_items::supersedes.eq(row.supersedes),
            memory_items::revision.eq(row.revision),
            memory_items::created_at.eq(row.created_at),
        );
        let table = diesel::insert_into(memory_items::table);
        let id = match row.id {
            0 => table.values(values).returning(memory_items::id).get_result(&mut self.0)?,
            id => {
                let values = (memory_items::id.eq(id), values);
                table.values(values).returning(memory_items::id).get_result(&mut self.0)?
            }
        };
        Ok(MemoryId(id))
    }

    fn end_memory(&mut self, id: MemoryId, end: &MemoryEnd) -> Done<()> {
        let ended = (
            memory_items::superseded_by.eq(end.superseded_by.map(|id| id.0)),
            memory_items::ended_at.eq(end.at),
            memory_items::revision.eq(end.revision),
            // Nobody looks for it any more.
            memory_items::embedding.eq(None::<&[u8]>),
            memory_items::model.eq(None::<&str>),
            memory_items::dimension.eq(None::<i64>),
        );
        self.run(update(memory_items::table, memory_items::id.eq(id.0), ended))?;
        if let Some(reason) = &end.reason {
            let why = memory_items::reason.eq(Text(reason));
            self.run(update(memory_items::table, memory_items::id.eq(id.0), why))?;
        }
        let Some(erased) = &end.erased else { return Ok(()) };
        let gone = (
            memory_items::content.eq(Text(erased)),
            memory_items::metadata.eq(None::<Text<Sealed>>),
            memory_items::tags.eq("[]"),
            memory_items::fingerprint.eq(None::<&[u8]>),
        );
        self.run(update(memory_items::table, memory_items::id.eq(id.0), gone))
    }

    fn print_memory(&mut self, id: MemoryId, fingerprint: &[u8]) -> Done<()> {
        self.run(update(memory_items::table, memory_items::id.eq(id.0), memory_items::fingerprint.eq(fingerprint)))
    }

    fn drop_archived(&mut self, of: SessionId) -> Done<()> {
        let of_session = session_jobs::table.filter(session_jobs::session_id.eq(of.0));
        let of_jobs = memory_items::job_id.eq_any(of_session.select(session_jobs::job_id.nullable()));
        self.run(diesel::delete(memory_items::table.filter(of_jobs).filter(memory_items::step.is_null())))
    }

    fn drop_thread(&mut self, scope: &str, thread: &str, (first, last): (i64, i64)) -> Done<()> {
        let of = memory_items::scope.eq(scope).and(memory_items::thread.eq(thread));
        self.run(diesel::delete(memory_items::table.filter(of.and(memory_items::place.between(first, last)))))
    }

    fn last_memory_revision(&mut self) -> Done<i64> {
        let last: Option<i64> = memory_items::table.select(max(memory_items::revision)).first(&mut self.0)?;
        Ok(last.unwrap_or(0))
    }

    fn index_words(&mut self, id: MemoryId, content: &str, around: &str) -> Done<()> {
        let row = (memory_words::rowid.eq(id.0), memory_words::content.eq(content), memory_words::around.eq(around));
        self.run(diesel::replace_into(memory_words::table).values(row))
    }

    fn drop_words(&mut self, id: MemoryId) -> Done<()> {
        self.run(diesel::delete(memory_words::table.filter(memory_words::rowid.eq(id.0))))
    }

    fn drop_all_words(&mut self) -> Done<()> {
        self.run(diesel::delete(memory_words::table))
    }

    fn find_words(&mut self, expression: &str, among: &MemoryFilter, most: u32) -> Done<Vec<(MemoryId, f64)>> {
        let query = diesel::sql_query(format!(
            "SELECT memory_items.id AS id, -bm25(memory_words, 1.0, {AROUND}) AS score
             FROM memory_words CROSS JOIN memory_items ON memory_items.id = memory_words.rowid
             WHERE memory_words MATCH ?1 AND {FITS} ORDER BY score DESC, memory_items.id DESC LIMIT ?2"
        ));
        let query = query.bind::<SqlText, _>(expression).bind::<BigInt, _>(i64::from(most));
        let found: Vec<Scored> = fit!(query, among).load(&mut self.0)?;
        Ok(found.into_iter().map(|row| (MemoryId(row.id), row.score)).collect())
    }

    fn have_words(&mut self, column: WordsIn, expression: &str, ids: &[MemoryId]) -> Done<Vec<MemoryId>> {
        let column = match column {
            WordsIn::Content => "content",
            WordsIn::Around => "around",
        };
        let query = diesel::sql_query(
            "SELECT rowid AS id FROM memory_words WHERE memory_words MATCH ? AND rowid IN (SELECT value FROM json_each(?))",
        );
        let query = query.bind::<SqlText, _>(format!("{{{column}}} : ({expression})"));
        let ids = serde_json::to_string(&numbers(ids))?;
        let found: Vec<Numbered> = query.bind::<SqlText, _>(ids).load(&mut self.0)?;
        Ok(found.into_iter().map(|row| MemoryId(row.id)).collect())
    }

    fn memory_standing(&mut self, sealed: bool) -> Done<MemoryStanding> {
        let counted: Counted = diesel::sql_query(
            "SELECT count(*) AS items,
                count(*) FILTER (WHERE NOT ?1 AND id NOT IN (SELECT id FROM memory_words_docsize)) AS without_words,
                (SELECT count(*) FROM memory_words_docsize
                    WHERE ?1 OR id NOT IN (SELECT id FROM memory_items WHERE ended_at IS NULL)) AS stray_words
             FROM memory_items WHERE ended_at IS NULL",
        )
        .bind::<Bool, _>(sealed)
        .get_result(&mut self.0)?;
        let count = |n: i64| n.unsigned_abs();
        let Counted { items, without_words, stray_words } = counted;
        let (items, without_words, stray_words) = (count(items), count(without_words), count(stray_words));
        Ok(MemoryStanding { items, without_words, stray_words, ..MemoryStanding::default() })
    }
}
