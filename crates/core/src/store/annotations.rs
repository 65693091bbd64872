//! Remarks about jobs.

use super::driver::{AnnotationInsert, AnnotationRow, Driver};
use super::fault::no_such;
use super::seal::{Keys, Place};
use super::{Outcome, Tx};
use crate::annotation::{Annotation, NewAnnotation};
use crate::clock::Millis;
use crate::job::JobId;

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

/// Remarks about a job, oldest first.
pub fn of<D: Driver>(db: &mut D, keys: &Keys, job: JobId) -> Outcome<Vec<Annotation>> {
    let annotation = |AnnotationRow { id, author, text, tags, created_at }| {
        // A remark without its tags is still one.
        let tags = serde_json::from_str(&tags).unwrap_or_default();
        let text = keys.show(Place::annotation(job.0), &text);
        Annotation { id, job, author, text, tags, created_at }
    };
    Ok(db.annotations(job)?.into_iter().map(annotation).collect())
}
