//! Vectors of `memory_items`, and `vss_memory_items`, the index of them.
//!
//! The index is sqlite-vec's, and is read from the tables in which that keeps it: its own search for the nearest k of n
//! takes time in proportion to k times n, and reads a vector by walking a whole chunk.

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, Text as SqlText};
use posse_core::memory::meaning::{Space, bytes, numbers, signs};
use posse_core::memory::{ChosenSpace, MemoryFilter, MemoryId};
use posse_core::store::Done;
use posse_core::store::driver::{MemoryRow, VectorRows};

use super::Rows;
use super::memory::{Columns, FITS, Numbered, fit, read};
use crate::literal::{IsRemembered, update};
use crate::schema::{memory_items, memory_space, vss_memory_items};

diesel::define_sql_function! {
    /// Bits, as sqlite-vec takes them.
    fn vec_bit(bits: Binary) -> Binary;
}

/// The only row of `memory_space`.
const ROW: i64 = 1;

/// A thousand items or so, as sqlite-vec keeps them.
#[derive(QueryableByName)]
struct Chunk {
    /// Which of its places are taken, one bit each.
    #[diesel(sql_type = Binary)]
    taken: Vec<u8>,
    #[diesel(sql_type = Binary)]
    ids: Vec<u8>,
    #[diesel(sql_type = Binary)]
    signs: Vec<u8>,
}

#[derive(QueryableByName)]
struct Stored {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Binary)]
    vector: Vec<u8>,
}

#[derive(QueryableByName)]
struct Differing {
    #[diesel(sql_type = BigInt)]
    lacks: i64,
    #[diesel(sql_type = BigInt)]
    strays: i64,
}

fn whole(dimension: usize) -> i64 {
    i64::try_from(dimension).unwrap_or(i64::MAX)
}

/// How many bits differ.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let (a, b) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let words = a.0.iter().zip(b.0).map(|(a, b)| u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b));
    let rest = a.1.iter().zip(b.1).map(|(a, b)| a ^ b);
    (words.map(u64::count_ones).sum::<u32>() + rest.map(u8::count_ones).sum::<u32>()) as usize
}

impl VectorRows for Rows {
    fn memory_space(&mut self) -> Done<Option<ChosenSpace>> {
        type Row = (String, i64, i64, Option<i64>);
        let of = (memory_space::model, memory_space::dimension, memory_space::chosen_at, memory_space::filled_through);
        let row: Option<Row> = memory_space::table.select(of).first(&mut self.0).optional()?;
        Ok(row.map(|(model, dimension, chosen_at, through)| {
            let space = Space { model, dimension: usize::try_from(dimension).unwrap_or_default() };
            ChosenSpace { space, chosen_at, filled_through: through.map(MemoryId) }
        }))
    }

    fn keep_memory_space(&mut self, chosen: &ChosenSpace) -> Done<()> {
        let row = (
            memory_space::id.eq(ROW),
            memory_space::model.eq(&chosen.space.model),
            memory_space::dimension.eq(whole(chosen.space.dimension)),
            memory_space::chosen_at.eq(chosen.chosen_at),
            memory_space::filled_through.eq(chosen.filled_through.map(|id| id.0)),
        );
        self.run(diesel::replace_into(memory_space::table).values(row))
    }

    fn make_vectors(&mut self, dimension: usize) -> Done<()> {
        let bits = 8 * dimension.div_ceil(8);
        Ok(self.0.batch_execute(&format!(
            "DROP TABLE vss_memory_items;
             CREATE VIRTUAL TABLE vss_memory_items USING vec0 (
                 id INTEGER PRIMARY KEY, scope TEXT PARTITION KEY, signs bit[{bits}], +vector BLOB
             )"
        ))?)
    }

    fn put_vector(&mut self, id: MemoryId, scope: &str, vector: &[f32]) -> Done<()> {
        self.drop_vector(id)?;
        let row = (
            vss_memory_items::id.eq(id.0),
            vss_memory_items::scope.eq(scope),
            vss_memory_items::signs.eq(vec_bit(signs(vector))),
            vss_memory_items::vector.eq(bytes(vector)),
        );
        self.run(diesel::insert_into(vss_memory_items::table).values(row))
    }

    fn drop_vector(&mut self, id: MemoryId) -> Done<()> {
        self.run(diesel::delete(vss_memory_items::table.filter(vss_memory_items::id.eq(id.0))))
    }

    fn nearest(&mut self, signs: &[u8], scopes: Option<&[String]>) -> Done<Vec<MemoryId>> {
        let chunks = diesel::sql_query(
            "SELECT chunk.validity AS taken, chunk.rowids AS ids, bits.vectors AS signs
             FROM vss_memory_items_chunks AS chunk
             CROSS JOIN vss_memory_items_vector_chunks00 AS bits ON bits._rowid_ = chunk.chunk_id
             WHERE ?1 IS NULL OR chunk.partition00 IN (SELECT value FROM json_each(?1))",
        );
        let chunks = chunks.bind::<Nullable<SqlText>, _>(scopes.map(serde_json::to_string).transpose()?);
        let mut by_distance = vec![Vec::new(); 8 * signs.len() + 1];
        for chunk in chunks.load_iter::<Chunk, diesel::connection::DefaultLoadingMode>(&mut self.0)? {
            let Chunk { taken, ids, signs: all } = chunk?;
            let each = ids.as_chunks::<8>().0.iter().zip(all.chunks_exact(signs.len().max(1))).enumerate();
            for (place, (id, its)) in each {
                if taken.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1) {
                    by_distance[distance(signs, its)].push(MemoryId(i64::from_le_bytes(*id)));
                }
            }
        }
        Ok(by_distance.concat())
    }

    fn fitting(&mut self, ids: &[MemoryId], among: &MemoryFilter) -> Done<Vec<MemoryId>> {
        let query = diesel::sql_query(format!(
            "SELECT memory_items.id AS id FROM json_each(?1) AS given
             CROSS JOIN memory_items ON memory_items.id = given.value
             WHERE ?2 AND {FITS} ORDER BY given.key"
        ));
        let query = query.bind::<SqlText, _>(serde_json::to_string(ids)?).bind::<Bool, _>(true);
        let fitting: Vec<Numbered> = fit!(query, among).load(&mut self.0)?;
        Ok(fitting.into_iter().map(|row| MemoryId(row.id)).collect())
    }

    fn vectors(&mut self, ids: &[MemoryId], dimension: usize) -> Done<Vec<(MemoryId, Vec<f32>)>> {
        let query = diesel::sql_query(
            "SELECT kept.rowid AS id, kept.value00 AS vector FROM json_each(?1) AS given
             CROSS JOIN vss_memory_items_auxiliary AS kept ON kept.rowid = given.value",
        );
        let stored: Vec<Stored> = query.bind::<SqlText, _>(serde_json::to_string(ids)?).load(&mut self.0)?;
        let vector = |row: Stored| Some((MemoryId(row.id), numbers(&row.vector, dimension)?));
        Ok(stored.into_iter().filter_map(vector).collect())
    }

    fn embed(&mut self, id: MemoryId, space: &Space, stored: &[u8], revision: i64) -> Done<()> {
        let made = (
            memory_items::embedding.eq(stored),
            memory_items::model.eq(&space.model),
            memory_items::dimension.eq(whole(space.dimension)),
            memory_items::revision.eq(revision),
        );
        self.run(update(memory_items::table, memory_items::id.eq(id.0), made))
    }

    fn embedding(&mut self, id: MemoryId, space: &Space) -> Done<Option<Vec<u8>>> {
        let of = memory_items::table
            .filter(memory_items::id.eq(id.0))
            .filter(memory_items::model.eq(&space.model))
            .filter(memory_items::dimension.eq(whole(space.dimension)))
            .select(memory_items::embedding);
        Ok(of.first::<Option<Vec<u8>>>(&mut self.0).optional()?.flatten())
    }

    fn unembedded(&mut self, space: &Space, most: u32) -> Done<Vec<MemoryRow>> {
        let (model, dimension) = (&space.model, whole(space.dimension));
        let mut rows: Vec<Columns> = Vec::new();
        // Each is a range of `memory_items_space`.
        macro_rules! take {
            ($($which:expr),+ $(,)?) => {$(
                let left = i64::from(most) - rows.len() as i64;
                if left > 0 {
                    let some = memory_items::table.select(Columns::as_select()).filter($which).filter(IsRemembered);
                    let order = (memory_items::model, memory_items::dimension, memory_items::id);
                    rows.extend(some.order(order).limit(left).load::<Columns>(&mut self.0)?);
                }
            )+};
        }
        take!(
            memory_items::model.is_null().and(memory_items::dimension.is_null()),
            memory_items::model.lt(model),
            memory_items::model.gt(model),
            memory_items::model.eq(model).and(memory_items::dimension.lt(dimension)),
            memory_items::model.eq(model).and(memory_items::dimension.gt(dimension)),
        );
        Ok(rows.into_iter().map(read).collect())
    }

    fn embedded(&mut self, space: &Space, after: MemoryId, most: u32) -> Done<Vec<MemoryRow>> {
        let rows: Vec<Columns> = memory_items::table
            .select(Columns::as_select())
            .filter(memory_items::model.eq(&space.model))
            .filter(memory_items::dimension.eq(whole(space.dimension)))
            .filter(memory_items::id.gt(after.0))
            .filter(IsRemembered)
            .order(memory_items::id)
            .limit(i64::from(most))
            .load(&mut self.0)?;
        Ok(rows.into_iter().map(read).collect())
    }

    fn without_vector(&mut self, chosen: &ChosenSpace) -> Done<u64> {
        let count = |which: &str| format!("(SELECT count(*) FROM memory_items WHERE ended_at IS NULL AND {which})");
        let parts = [
            "model IS NULL",
            "model < ?1",
            "model > ?1",
            "model = ?1 AND dimension < ?2",
            "model = ?1 AND dimension > ?2",
            "model = ?1 AND dimension = ?2 AND id > ?3",
        ];
        let query = diesel::sql_query(format!("SELECT {} AS id", parts.map(count).join(" + ")));
        let counted: Numbered = query
            .bind::<SqlText, _>(&chosen.space.model)
            .bind::<BigInt, _>(whole(chosen.space.dimension))
            .bind::<BigInt, _>(chosen.filled_through.map_or(i64::MAX, |id| id.0))
            .get_result(&mut self.0)?;
        Ok(counted.id.unsigned_abs())
    }

    fn vector_faults(&mut self, space: &Space, sealed: bool) -> Done<(u64, u64)> {
        let having = "SELECT id FROM memory_items WHERE ended_at IS NULL AND model = ?1 AND dimension = ?2";
        let query = diesel::sql_query(format!(
            "SELECT (SELECT count(*) FROM ({having})
                    WHERE NOT ?3 AND id NOT IN (SELECT id FROM vss_memory_items)) AS lacks,
                (SELECT count(*) FROM vss_memory_items WHERE ?3 OR id NOT IN ({having})) AS strays"
        ));
        let differing: Differing = query
            .bind::<SqlText, _>(&space.model)
            .bind::<BigInt, _>(whole(space.dimension))
            .bind::<Bool, _>(sealed)
            .get_result(&mut self.0)?;
        Ok((differing.lacks.unsigned_abs(), differing.strays.unsigned_abs()))
    }
}
