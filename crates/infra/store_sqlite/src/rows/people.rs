//! Rows of `annotations`.

use diesel::prelude::*;
use posse_core::job::JobId;
use posse_core::store::Done;
use posse_core::store::driver::{AnnotationInsert, AnnotationRow, PeopleRows};
use posse_core::store::seal::Sealed;

use super::Rows;
use crate::schema::annotations;
use crate::sealed_text::Text;

impl PeopleRows for Rows {
    fn annotations(&mut self, job: JobId) -> Done<Vec<AnnotationRow>> {
        type Row = (i64, String, Sealed, String, i64);
        let rows: Vec<Row> = annotations::table
            .filter(annotations::job_id.eq(job.0))
            .order(annotations::id)
            .select((
                annotations::id,
                annotations::author,
                annotations::text,
                annotations::tags,
                annotations::created_at,
            ))
            .load(&mut self.0)?;
        let annotation =
            |(id, author, text, tags, created_at): Row| AnnotationRow { id, author, text, tags, created_at };
        Ok(rows.into_iter().map(annotation).collect())
    }

    fn annotate(&mut self, job: JobId, row: AnnotationInsert<'_>) -> Done<i64> {
        Ok(diesel::insert_into(annotations::table)
            .values((
                annotations::job_id.eq(job.0),
                annotations::author.eq(row.author),
                annotations::text.eq(Text(row.text)),
                annotations::tags.eq(row.tags),
                annotations::created_at.eq(row.created_at),
            ))
            .returning(annotations::id)
            .get_result(&mut self.0)?)
    }
}
