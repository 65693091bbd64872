-- Jobs that belong together.

-- Whether the end of this job is somebody's business: another job waits for it. Nearly always 0, and
-- then its end costs nothing more.
ALTER TABLE jobs ADD COLUMN awaited INTEGER NOT NULL DEFAULT 0 CHECK (awaited IN (0, 1));

-- Ids are never used again, so a parent or root that was deleted is merely not there any more.
ALTER TABLE job_data ADD COLUMN parent_id INTEGER;
ALTER TABLE job_data ADD COLUMN root_id INTEGER;
ALTER TABLE job_data ADD COLUMN group_name TEXT;
-- A JSON array of words; job_tags has the same, to find jobs by them.
ALTER TABLE job_data ADD COLUMN tags TEXT;
-- A JSON object.
ALTER TABLE job_data ADD COLUMN meta TEXT;

CREATE INDEX job_data_parent ON job_data (parent_id, job_id) WHERE parent_id IS NOT NULL;
CREATE INDEX job_data_group ON job_data (group_name, job_id) WHERE group_name IS NOT NULL;

CREATE TABLE job_tags (
    tag TEXT NOT NULL,
    job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    PRIMARY KEY (tag, job_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX job_tags_job ON job_tags (job_id);

-- A job that waits for others is suspended and has an open row for each. A row stays when it is no
-- longer waited for.
CREATE TABLE dependencies (
    job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    on_job_id INTEGER NOT NULL,
    on_failed TEXT NOT NULL CHECK (on_failed IN ('cancel', 'run', 'wait')),
    open INTEGER NOT NULL CHECK (open IN (0, 1)),
    PRIMARY KEY (job_id, on_job_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dependencies_open ON dependencies (on_job_id, job_id) WHERE open = 1;

-- How far running jobs are, as their executors tell.
CREATE TABLE progress (
    job_id INTEGER NOT NULL PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    share REAL NOT NULL CHECK (share BETWEEN 0 AND 1),
    text TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

-- Batches that remember how far they are.
CREATE TABLE batches (
    name TEXT NOT NULL PRIMARY KEY,
    lines INTEGER NOT NULL CHECK (lines >= 0),
    digest BLOB NOT NULL,
    jobs INTEGER NOT NULL CHECK (jobs >= 0),
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Names that later lines of a batch use for its jobs.
CREATE TABLE batch_names (
    batch TEXT NOT NULL REFERENCES batches (name) ON DELETE CASCADE,
    name TEXT NOT NULL,
    job_id INTEGER NOT NULL,
    PRIMARY KEY (batch, name)
) STRICT, WITHOUT ROWID;
