//! Remarks about jobs.

use diesel::prelude::*;
use posse_core::annotation::{Annotation, NewAnnotation};
use posse_core::clock::Millis;
use posse_core::job::JobId;

use super::fault::Outcome;
use super::jobs::no_such;
use super::schema::{annotations, jobs};
use super::seal::{Keys, Place, Sealed};
use super::writer::Transaction;

/// Saves a remark about a job that is there, and gives its number.
pub(super) fn add(
    tx: &mut Transaction<'_>,
    job: JobId,
    author: &str,
    annotation: &NewAnnotation,
    now: Millis,
) -> Outcome<i64> {
    let id = diesel::insert_into(annotations::table)
        .values((
            annotations::job_id.eq(job.0),
            annotations::author.eq(author),
            annotations::text.eq(tx.keys.seal(Place::annotation(job.0), annotation.text.as_str())),
            annotations::tags.eq(serde_json::to_string(&annotation.tags)?),
            annotations::created_at.eq(now),
        ))
        .returning(annotations::id)
        .get_result(tx.connection)?;
    Ok(id)
}

/// The same for a remark that somebody makes by hand.
pub(super) fn annotate(
    tx: &mut Transaction<'_>,
    job: JobId,
    author: &str,
    annotation: &NewAnnotation,
    now: Millis,
) -> Outcome<i64> {
    let found: Option<i64> = jobs::table.find(job.0).select(jobs::id).first(tx.connection).optional()?;
    match found {
        Some(_) => add(tx, job, author, annotation, now),
        None => Err(no_such(job)),
    }
}

/// Remarks about a job, oldest first.
pub(super) fn of(connection: &mut SqliteConnection, keys: &Keys, job: JobId) -> Outcome<Vec<Annotation>> {
    type Row = (i64, i64, String, Sealed, String, i64);
    let rows: Vec<Row> =
        annotations::table.filter(annotations::job_id.eq(job.0)).order(annotations::id).load(connection)?;
    let annotation = |(id, job, author, text, tags, created_at): Row| {
        // A remark without its tags is still one.
        let tags = serde_json::from_str(&tags).unwrap_or_default();
        let text = keys.show(Place::annotation(job), &text);
        Annotation { id, job: JobId(job), author, text, tags, created_at }
    };
    Ok(rows.into_iter().map(annotation).collect())
}
