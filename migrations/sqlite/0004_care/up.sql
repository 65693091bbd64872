-- Rules that make jobs at times.
CREATE TABLE schedules (
    name TEXT NOT NULL PRIMARY KEY,
    cron TEXT NOT NULL,
    -- The IANA name of the rule's time zone.
    zone TEXT NOT NULL,
    -- The job it makes, as JSON.
    job TEXT NOT NULL,
    missed TEXT NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    overlap TEXT NOT NULL CHECK (overlap IN ('allow', 'skip')),
    -- Only whoever still finds the value it read may make the jobs of that time.
    next_at INTEGER NOT NULL,
    paused_at INTEGER,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_due ON schedules (next_at) WHERE paused_at IS NULL;

-- Which job was made for which time: never two.
CREATE TABLE schedule_jobs (
    schedule TEXT NOT NULL REFERENCES schedules (name) ON DELETE CASCADE,
    due_at INTEGER NOT NULL,
    job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    PRIMARY KEY (schedule, due_at)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_jobs_job ON schedule_jobs (job_id);

-- What one process at a time does for all.
CREATE TABLE duties (
    name TEXT NOT NULL PRIMARY KEY,
    worker TEXT NOT NULL,
    held_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Times at which a host's clock was set, as worker processes noticed it. Only the latest are kept.
CREATE TABLE clock_jumps (
    id INTEGER NOT NULL PRIMARY KEY,
    worker TEXT NOT NULL,
    -- By the new time.
    noticed_at INTEGER NOT NULL,
    by_ms INTEGER NOT NULL
) STRICT;

ALTER TABLE workers ADD COLUMN lease_ms INTEGER NOT NULL DEFAULT 30000;
ALTER TABLE workers ADD COLUMN drain_requested_at INTEGER;

-- Who refers to a content: asked when the last one who did is deleted.
CREATE INDEX steps_blob ON steps (blob_hash) WHERE blob_hash IS NOT NULL;
