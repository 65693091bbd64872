//! Every statement that the behaviours send to SQLite, held against what it costs: none may look at a row for every job
//! that has ever ended, unless somebody decided so here.

use super::statements::Noted;

/// Panics where a statement that ran walks a table which grows for ever.
pub fn judge(folder: &Noted) {
    for sql in folder.sent().about_rows().into_iter().filter(|sql| !sql.starts_with("INSERT")) {
        for step in folder.plan(sql) {
            assert!(is_bounded(&step, sql), "walks a table that grows for ever: {step}\n{sql}");
        }
    }
}

fn is_bounded(step: &str, sql: &str) -> bool {
    let Some(scanned) = step.strip_prefix("SCAN ") else { return true };
    let table = scanned.split(' ').next().unwrap_or(scanned);
    let grows = [
        "jobs",
        "job_data",
        "job_tags",
        "attempts",
        "steps",
        "tool_calls",
        "blobs",
        "annotations",
        "annotation_tags",
        "asks",
        "dependencies",
        "group_waits",
        "progress",
        "sessions",
        "session_jobs",
        "session_summaries",
        "memory_items",
        "schedule_jobs",
        "batches",
        "batch_names",
    ];
    // These hold only what has not ended, or still holds a key; and of blocks there are a few for each persona.
    let of_few = [
        "jobs_claim",
        "jobs_due",
        "jobs_lease",
        "jobs_suspended",
        "jobs_cancel",
        "jobs_unique",
        "asks_open",
        "asks_expiry",
        "sessions_deleted",
        "memory_items_core",
    ];
    // Newest first until a page is full; only people ask.
    let is_page = sql.contains("DESC LIMIT ?") && !sql.contains("jobs.state =") && !sql.contains("jobs.state IN");
    // The newest ten thousand at most.
    let is_near = sql.contains("`jobs`.`id` >= ?");
    // Only people ask how many there are of each kind.
    let counts = sql.contains("count(*)") && step.contains("INDEX jobs_final");
    // Only who looks after the index of words compares all of it.
    let compares = sql.contains("memory_words_docsize") || sql.contains("AS strays");
    !grows.contains(&table)
        || of_few.iter().any(|index| step.contains(&format!("INDEX {index}")))
        || is_page
        || is_near
        || counts
        || compares
}
