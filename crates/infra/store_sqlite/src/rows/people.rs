//! Rows of `annotations` and `asks`.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text as SqlText};
use posse_core::job::JobId;
use posse_core::job::question::{QuestionId, QuestionState};
use posse_core::store::driver::{
    AnnotationInsert, AnnotationRow, AnnotationsOf, AskChange, AskInsert, AskRow, AskSet, AsksOf, PeopleRows,
};
use posse_core::store::seal::Sealed;
use posse_core::store::{Done, Unreadable};

use super::Rows;
use crate::literal::{IsOpenAsk, update};
use crate::schema::{annotation_tags, annotations, asks, jobs, session_jobs};
use crate::sealed_text::Text;

#[derive(Queryable, Selectable)]
#[diesel(table_name = asks)]
struct AskColumns {
    id: i64,
    job_id: i64,
    seq: i64,
    position: i32,
    text: Sealed,
    state: String,
    answer: Option<Sealed>,
    settled_by: Option<String>,
    created_at: i64,
    expires_at: Option<i64>,
    settled_at: Option<i64>,
    #[diesel(select_expression = jobs::role, select_expression_type = jobs::role)]
    role: String,
}

impl AskColumns {
    fn read(self) -> Done<AskRow> {
        let known = QuestionState::ALL.into_iter().find(|known| known.as_str() == self.state);
        Ok(AskRow {
            id: QuestionId(self.id),
            job: JobId(self.job_id),
            role: self.role,
            seq: self.seq,
            position: self.position,
            text: self.text,
            state: known
                .ok_or_else(|| Unreadable(format!("question {} has the unknown state '{}'", self.id, self.state)))?,
            answer: self.answer,
            settled_by: self.settled_by,
            created_at: self.created_at,
            expires_at: self.expires_at,
            settled_at: self.settled_at,
        })
    }
}

impl PeopleRows for Rows {
    fn annotations(&mut self, of: AnnotationsOf<'_>) -> Done<Vec<AnnotationRow>> {
        type Row = (i64, i64, String, Sealed, String, i64);
        let annotation = |(id, job, author, text, tags, created_at): Row| {
            let job = JobId(job);
            AnnotationRow { id, job, author, text, tags, created_at }
        };
        let (filter, before, most) = match of {
            AnnotationsOf::Job(job) => {
                let of_job = annotations::table.filter(annotations::job_id.eq(job.0)).order(annotations::id);
                return self.load(of_job, annotation);
            }
            AnnotationsOf::Fitting(filter, before, most) => (filter, before, most),
        };
        let mut query = annotations::table.order(annotations::id.desc()).limit(i64::from(most)).into_boxed();
        for tag in &filter.tags {
            let tagged = annotation_tags::table.filter(annotation_tags::tag.eq(tag));
            query = query.filter(annotations::id.eq_any(tagged.select(annotation_tags::annotation_id)));
        }
        if let Some(id) = filter.id {
            query = query.filter(annotations::id.eq(id));
        }
        if let Some(job) = filter.job {
            query = query.filter(annotations::job_id.eq(job.0));
        }
        if let Some(author) = &filter.author {
            query = query.filter(annotations::author.eq(author));
        }
        if let Some(before) = before {
            query = query.filter(annotations::id.lt(before));
        }
        self.load(query, annotation)
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

    fn tag_annotation(&mut self, id: i64, tags: &str) -> Done<()> {
        self.run(update(annotations::table, annotations::id.eq(id), annotations::tags.eq(tags)))?;
        self.run(diesel::delete(annotation_tags::table.filter(annotation_tags::annotation_id.eq(id))))?;
        let each = diesel::sql_query(
            "INSERT OR IGNORE INTO annotation_tags (tag, annotation_id) SELECT value, ?1 FROM json_each(?2)",
        );
        self.run(each.bind::<BigInt, _>(id).bind::<SqlText, _>(tags))
    }

    fn asks(&mut self, of: AsksOf) -> Done<Vec<AskRow>> {
        let asks = asks::table.inner_join(jobs::table).select(AskColumns::as_select());
        let in_order = (asks::job_id, asks::seq, asks::position);
        let rows: Vec<AskColumns> = match of {
            AsksOf::One(id) => asks.filter(asks::id.eq(id.0)).load(&mut self.0)?,
            AsksOf::Job(job) => asks.filter(asks::job_id.eq(job.0)).order(in_order).load(&mut self.0)?,
            AsksOf::Session(session) => {
                let of_session = session_jobs::table.filter(session_jobs::session_id.eq(session.0));
                let of_session = asks::job_id.eq_any(of_session.select(session_jobs::job_id));
                asks.filter(of_session).order(in_order).load(&mut self.0)?
            }
            AsksOf::Overdue(at, most) => asks
                .filter(IsOpenAsk)
                .filter(asks::expires_at.le(at))
                .order(asks::id)
                .limit(i64::from(most))
                .load(&mut self.0)?,
            AsksOf::Listed { job, settled, most } => {
                let mut query = asks.order(asks::id).limit(i64::from(most)).into_boxed();
                if !settled {
                    query = query.filter(IsOpenAsk);
                }
                if let Some(job) = job {
                    query = query.filter(asks::job_id.eq(job.0));
                }
                query.load(&mut self.0)?
            }
        };
        rows.into_iter().map(AskColumns::read).collect()
    }

    fn ask(&mut self, job: JobId, row: AskInsert) -> Done<()> {
        self.run(diesel::insert_into(asks::table).values((
            asks::job_id.eq(job.0),
            asks::seq.eq(row.seq),
            asks::position.eq(row.position),
            asks::kind.eq("question"),
            asks::text.eq(Text(row.text)),
            asks::state.eq(row.state.as_str()),
            asks::answer.eq(row.answer.map(Text)),
            asks::created_at.eq(row.created_at),
            asks::expires_at.eq(row.expires_at),
            asks::settled_at.eq(row.settled_at),
        )))
    }

    fn change_asks(&mut self, which: AskSet, to: AskChange<'_>) -> Done<()> {
        let set = (
            asks::state.eq(to.state.as_str()),
            asks::answer.eq(to.answer.map(Text)),
            asks::settled_by.eq(to.settled_by),
            asks::settled_at.eq(to.settled_at),
        );
        match which {
            AskSet::One(id) => self.run(update(asks::table, asks::id.eq(id.0), set)),
            // Spells the condition of the index of open ones.
            AskSet::OfJob(job, QuestionState::Open) => {
                self.run(update(asks::table, asks::job_id.eq(job.0).and(IsOpenAsk), set))
            }
            AskSet::OfJob(job, from) => {
                let of_job = asks::job_id.eq(job.0).and(asks::state.eq(from.as_str()));
                self.run(update(asks::table, of_job, set))
            }
        }
    }
}
