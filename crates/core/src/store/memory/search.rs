//! Searching by words.

use std::collections::HashMap;

use super::held::Held;
use super::row::item;
use crate::memory::words::{asked, quoted};
use crate::memory::{Hit, MAX_FOUND, MemoryFilter, MemoryFound, MemoryId, MemoryItem, MemorySearch};
use crate::store::Outcome;
use crate::store::driver::{Driver, MemoryOf, WordsIn};
use crate::store::seal::Keys;

/// What is found of a question. `held` has the words where texts are sealed.
pub fn search<D: Driver>(db: &mut D, keys: &Keys, held: &mut Held<D>, what: &MemorySearch) -> Outcome<MemoryFound> {
    let limit = what.limit.min(MAX_FOUND);
    let filter = MemoryFilter { ended: false, ..what.filter.clone() };
    let words = asked(&what.text);
    let mut found =
        MemoryFound { left_out: words.left_out.clone(), too_many: words.too_many, ..MemoryFound::default() };
    let Some(expression) = words.expression() else {
        let rows = db.memory(MemoryOf::Listed(&filter, i64::MAX, limit))?;
        let hit = |row| Hit { item: item(keys, row), score: 0.0, words: Vec::new(), around: Vec::new() };
        found.items = rows.into_iter().map(hit).collect();
        found.newest = true;
        return Ok(found);
    };
    let (hits, matched) = match keys.seals() {
        true => {
            let rows = held.up_to_date(db, keys)?;
            let told = look(rows, &expression, &words.words, &filter, limit)?;
            found.not_loaded = held.left_out();
            told
        }
        false => look(db, &expression, &words.words, &filter, limit)?,
    };
    let ids: Vec<_> = hits.iter().map(|(id, _)| *id).collect();
    let rows = db.memory(MemoryOf::Ids(&ids))?;
    // Of what was held, something may have ended at this moment.
    let mut items: HashMap<MemoryId, MemoryItem> =
        rows.into_iter().filter(|row| row.ended_at.is_none()).map(|row| (MemoryId(row.id), item(keys, row))).collect();
    let all = |which: WordsIn, id: MemoryId| {
        let has = |(_, column, ids): &&(&String, WordsIn, Vec<MemoryId>)| *column == which && ids.contains(&id);
        matched.iter().filter(has).map(|(word, _, _)| (*word).clone()).collect::<Vec<_>>()
    };
    found.items = hits
        .into_iter()
        .filter_map(|(id, score)| {
            let item = items.remove(&id)?;
            let own = all(WordsIn::Content, id);
            let around = all(WordsIn::Around, id).into_iter().filter(|word| !own.contains(word)).collect();
            Some(Hit { item, score, words: own, around })
        })
        .collect();
    found.words = words.words.clone();
    Ok(found)
}

type Matched<'a> = Vec<(&'a String, WordsIn, Vec<MemoryId>)>;

/// The best items, and which words stand in them and beside them.
fn look<'a, D: Driver>(
    db: &mut D,
    expression: &str,
    words: &'a [String],
    filter: &MemoryFilter,
    limit: u32,
) -> Outcome<(Vec<(MemoryId, f64)>, Matched<'a>)> {
    let hits = db.find_words(expression, filter, limit)?;
    let ids: Vec<_> = hits.iter().map(|(id, _)| *id).collect();
    let mut matched = Vec::new();
    for word in words {
        for column in [WordsIn::Content, WordsIn::Around] {
            let those = db.have_words(column, &quoted(word), &ids)?;
            matched.push((word, column, those));
        }
    }
    Ok((hits, matched))
}
