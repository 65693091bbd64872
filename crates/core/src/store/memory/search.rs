//! Searching by words, and by meaning beside them.

use std::collections::HashMap;

use super::held::Held;
use super::row::item;
use super::vectors;
use crate::memory::meaning::{LEAST, Meaning, POOL, WEIGHT, weighed};
use crate::memory::words::{Asked, asked, quoted};
use crate::memory::{ByMeaning, Hit, MAX_FOUND, MemoryFilter, MemoryFound, MemoryId, MemoryItem, MemorySearch};
use crate::store::Outcome;
use crate::store::driver::{Driver, MemoryOf, WordsIn};
use crate::store::seal::Keys;

/// What is found of a question. `held` has the words and vectors where texts are sealed.
pub fn search<D: Driver>(db: &mut D, keys: &Keys, held: &mut Held<D>, what: &MemorySearch) -> Outcome<MemoryFound> {
    let limit = what.limit.min(MAX_FOUND);
    let filter = MemoryFilter { ended: false, ..what.filter.clone() };
    let words = asked(&what.text);
    let mut found =
        MemoryFound { left_out: words.left_out.clone(), too_many: words.too_many, ..MemoryFound::default() };
    let meaning;
    (meaning, found.meaning) = by_meaning(db, what.meaning.as_ref())?;
    if words.words.is_empty() && (meaning.is_none() || what.text.trim().is_empty()) {
        let rows = db.memory(MemoryOf::Listed(&filter, i64::MAX, limit))?;
        found.items = rows.into_iter().map(|row| Score::default().hit(item(keys, row))).collect();
        found.newest = true;
        return Ok(found);
    }
    let scores = match keys.seals() {
        true => {
            let rows = held.up_to_date(db, keys)?;
            let scores = look(rows, &words, meaning, &filter, limit)?;
            found.not_loaded = held.left_out();
            found.meaning.words_alone += held.vectors_left_out();
            scores
        }
        false => look(db, &words, meaning, &filter, limit)?,
    };
    let ids: Vec<_> = scores.iter().map(|score| score.id).collect();
    let rows = db.memory(MemoryOf::Ids(&ids))?;
    // Of what was held, something may have ended at this moment.
    let mut items: HashMap<MemoryId, MemoryItem> =
        rows.into_iter().filter(|row| row.ended_at.is_none()).map(|row| (MemoryId(row.id), item(keys, row))).collect();
    let hit = |score: Score| items.remove(&score.id).map(|item| score.hit(item));
    found.items = scores.into_iter().filter_map(hit).collect();
    found.words = words.words;
    Ok(found)
}

/// Whether meaning can be compared, and what is said of that.
fn by_meaning<'a, D: Driver>(db: &mut D, asked: Option<&'a Meaning>) -> Outcome<(Option<&'a Meaning>, ByMeaning)> {
    let Some(chosen) = db.memory_space()? else {
        let why_not = asked.map(|_| "no item has a vector yet".to_owned());
        return Ok((None, ByMeaning { why_not, ..ByMeaning::default() }));
    };
    let words_alone = db.without_vector(&chosen)?;
    let space = chosen.space;
    Ok(match asked {
        Some(meaning) if meaning.space == space => {
            (asked, ByMeaning { model: Some(space.model), weight: WEIGHT, words_alone, why_not: None })
        }
        Some(meaning) => {
            (None, ByMeaning { why_not: Some(space.differs_from(&meaning.space)), ..ByMeaning::default() })
        }
        None => (None, ByMeaning::default()),
    })
}

/// How an item came to be found.
#[derive(Default)]
struct Score {
    id: MemoryId,
    score: f64,
    bm25: Option<f64>,
    likeness: Option<f64>,
    words: Vec<String>,
    around: Vec<String>,
}

impl Score {
    fn hit(self, item: MemoryItem) -> Hit {
        let Score { score, bm25, likeness, words, around, .. } = self;
        Hit { item, score, bm25, likeness, words, around }
    }
}

/// The best items, with which words stand in them and beside them.
fn look<D: Driver>(
    db: &mut D,
    asked: &Asked,
    meaning: Option<&Meaning>,
    filter: &MemoryFilter,
    limit: u32,
) -> Outcome<Vec<Score>> {
    let by_words = match asked.expression() {
        Some(expression) => db.find_words(&expression, filter, limit.max(POOL))?,
        None => Vec::new(),
    };
    let bm25: HashMap<_, _> = by_words.iter().copied().collect();
    let mut alike = match meaning {
        Some(meaning) => vectors::alike(db, meaning, filter)?,
        None => Vec::new(),
    };
    alike.retain(|(id, likeness)| *likeness >= LEAST || bm25.contains_key(id));
    let likeness: HashMap<_, _> = alike.iter().copied().collect();
    let mut best = if alike.is_empty() { by_words } else { weighed(&by_words, &alike) };
    best.truncate(limit as usize);
    let ids: Vec<_> = best.iter().map(|(id, _)| *id).collect();
    let score = |(id, score)| {
        let (bm25, likeness) = (bm25.get(&id).copied(), likeness.get(&id).copied());
        Score { id, score, bm25, likeness, ..Score::default() }
    };
    let mut scores: Vec<_> = best.into_iter().map(score).collect();
    for word in &asked.words {
        let own = db.have_words(WordsIn::Content, &quoted(word), &ids)?;
        let around = db.have_words(WordsIn::Around, &quoted(word), &ids)?;
        for score in &mut scores {
            if own.contains(&score.id) {
                score.words.push(word.clone());
            } else if around.contains(&score.id) {
                score.around.push(word.clone());
            }
        }
    }
    Ok(scores)
}
