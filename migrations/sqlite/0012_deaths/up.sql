-- What is known of the deaths of workers that held a job; see posse_core::job::deaths. Only jobs that met one have a row.
CREATE TABLE deaths (
    job_id INTEGER NOT NULL PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    -- How many in a row came without progress.
    in_a_row INTEGER NOT NULL CHECK (in_a_row >= 0),
    -- How far the job was at the last one: entries in its journal, and calls that had ended.
    entries INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    -- When that was.
    died_at INTEGER NOT NULL,
    -- Whether it is to be worked with nothing beside it. Off once it has ended.
    suspect INTEGER NOT NULL CHECK (suspect IN (0, 1)),
    -- The worker that claims nothing more until its hands are empty for it.
    awaited_by TEXT
) STRICT;

-- Asked by every claim, and nearly always empty.
CREATE INDEX deaths_suspect ON deaths (job_id) WHERE suspect = 1;

-- How many of them in a row the job may meet; 3 where absent.
ALTER TABLE job_data ADD COLUMN max_crashes INTEGER;
