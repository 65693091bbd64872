-- Conversations. What was said is in the jobs; here is which of them belong together.
CREATE TABLE sessions (
    -- AUTOINCREMENT: people write these numbers down.
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    role TEXT NOT NULL,
    -- What it remembers: the session before it, through that job. Fixed when it begins.
    previous_id INTEGER REFERENCES sessions (id) ON DELETE SET NULL,
    previous_job INTEGER,
    created_at INTEGER NOT NULL,
    used_at INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_role ON sessions (role, used_at, id);
CREATE INDEX sessions_used ON sessions (used_at, id);

CREATE TABLE session_jobs (
    session_id INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    job_id INTEGER NOT NULL UNIQUE REFERENCES jobs (id) ON DELETE CASCADE,
    PRIMARY KEY (session_id, job_id)
) STRICT, WITHOUT ROWID;

-- Summaries of sessions through one of their jobs. Written once.
CREATE TABLE session_summaries (
    session_id INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    through_job INTEGER NOT NULL,
    text TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, through_job)
) STRICT, WITHOUT ROWID;
