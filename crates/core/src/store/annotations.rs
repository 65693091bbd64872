//! Remarks about jobs.

use std::cmp::Reverse;

use super::driver::{AnnotationInsert, AnnotationRow, AnnotationsOf, Driver};
use super::fault::{misused, no_such};
use super::guard::guard;
use super::seal::{Keys, Place};
use super::{Outcome, Tx};
use crate::annotation::{Annotation, AnnotationFilter, NewAnnotation, SEARCHED_AT_MOST, Tagging};
use crate::clock::Millis;
use crate::job::JobId;
use crate::job::lease::Lease;

/// Saves a remark about a job that is there, and gives its number.
pub fn add<D: Driver>(
    tx: &mut Tx<'_, D>,
    job: JobId,
    author: &str,
    annotation: &NewAnnotation,
    now: Millis,
) -> Outcome<i64> {
    let text = tx.keys.seal(Place::annotation(job.0), annotation.text.as_str());
    let tags = serde_json::to_string(&annotation.tags)?;
    Ok(tx.db.annotate(job, AnnotationInsert { author, text, tags, created_at: now })?)
}

/// The same for a remark that somebody makes by hand.
pub fn annotate<D: Driver>(
    tx: &mut Tx<'_, D>,
    job: JobId,
    author: &str,
    annotation: &NewAnnotation,
    now: Millis,
) -> Outcome<i64> {
    match tx.db.job(job)? {
        Some(_) => add(tx, job, author, annotation, now),
        None => Err(no_such(job)),
    }
}

/// Changes the tags of a remark that is there.
pub fn tag<D: Driver>(
    tx: &mut Tx<'_, D>,
    id: i64,
    tagging: &Tagging,
    by: Option<Lease>,
) -> Outcome<Option<Annotation>> {
    guard(tx, by)?;
    let only = AnnotationFilter { id: Some(id), ..AnnotationFilter::default() };
    let Some(row) = tx.db.annotations(AnnotationsOf::Fitting(&only, None, 1))?.pop() else { return Ok(None) };
    let found = annotation(tx.keys, row);
    let tags = tagging.of(&found.tags).map_err(misused)?;
    if tags != found.tags {
        tx.db.tag_annotation(id, &serde_json::to_string(&tags)?)?;
    }
    Ok(Some(Annotation { tags, ..found }))
}

/// Remarks about a job, oldest first.
pub fn of<D: Driver>(db: &mut D, keys: &Keys, job: JobId) -> Outcome<Vec<Annotation>> {
    Ok(db.annotations(AnnotationsOf::Job(job))?.into_iter().map(|row| annotation(keys, row)).collect())
}

/// Texts that are opened at once: they may be long, and of most nothing is kept.
const TEXTS_AT_ONCE: u32 = 500;

/// Remarks that fit, newest first, or those with most of the words first.
pub fn find<D: Driver>(db: &mut D, keys: &Keys, filter: &AnnotationFilter) -> Outcome<Vec<Annotation>> {
    if filter.words.is_empty() {
        let rows = db.annotations(AnnotationsOf::Fitting(filter, filter.before, filter.limit))?;
        return Ok(rows.into_iter().map(|row| annotation(keys, row)).collect());
    }
    let (mut found, mut before, mut left) = (Vec::new(), filter.before, SEARCHED_AT_MOST);
    while left > 0 {
        let most = left.min(TEXTS_AT_ONCE);
        let rows = db.annotations(AnnotationsOf::Fitting(filter, before, most))?;
        let is_last = (rows.len() as u64) < u64::from(most);
        before = rows.last().map(|row| row.id);
        let opened = rows.into_iter().map(|row| annotation(keys, row));
        found.extend(opened.map(|one| (one.has_of(&filter.words), one)).filter(|(words, _)| *words > 0));
        // The newer of two with as many words stands before the other already.
        found.sort_by_key(|(words, _)| Reverse(*words));
        found.truncate(filter.limit as usize);
        left -= most;
        if is_last {
            break;
        }
    }
    Ok(found.into_iter().map(|(_, one)| one).collect())
}

fn annotation(keys: &Keys, AnnotationRow { id, job, author, text, tags, created_at }: AnnotationRow) -> Annotation {
    // A remark without its tags is still one.
    let tags = serde_json::from_str(&tags).unwrap_or_default();
    let text = keys.show(Place::annotation(job.0), &text);
    Annotation { id, job, author, text, tags, created_at }
}
