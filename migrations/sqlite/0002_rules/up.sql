-- Whether and when a job may run: unique keys, priorities that age, concurrency keys, rules.

-- How much waiting one step of priority is worth; 10 minutes.
ALTER TABLE jobs ADD COLUMN priority_step_ms INTEGER NOT NULL DEFAULT 600000 CHECK (priority_step_ms >= 0);
-- The order in which jobs are claimed. Nothing in it changes while a job waits.
ALTER TABLE jobs ADD COLUMN rank INTEGER GENERATED ALWAYS AS (run_at + priority * priority_step_ms) VIRTUAL;
-- Empty for none.
ALTER TABLE jobs ADD COLUMN concurrency_key TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN unique_key TEXT;
-- How long a job that completed goes on holding its unique key; not at all when absent.
ALTER TABLE jobs ADD COLUMN unique_ms INTEGER CHECK (unique_ms > 0);

ALTER TABLE job_data ADD COLUMN retry TEXT;

-- Jobs of one queue and key stand in a line of their own, so that a line which may not move is passed
-- by without a look at the jobs in it.
DROP INDEX jobs_claim;
CREATE INDEX jobs_claim ON jobs (role, queue, concurrency_key, rank, id) WHERE state = 'available';

-- With what a job that runs counts towards, so that the rules need no look at the rows.
DROP INDEX jobs_lease;
CREATE INDEX jobs_lease ON jobs (lease_until, leased_by, role, queue, concurrency_key) WHERE state = 'running';

-- One holder for each key. That a job which completed holds its key no longer is not a matter of
-- state but of time; whoever wants the key then takes it off that job.
CREATE UNIQUE INDEX jobs_unique ON jobs (unique_key) WHERE unique_key IS NOT NULL
    AND (finalized_at IS NULL OR (state = 'completed' AND unique_ms IS NOT NULL));

-- What is paused, and how many jobs may run or start.
CREATE TABLE rules (
    scope TEXT NOT NULL CHECK (scope IN ('all', 'queue', 'role', 'key')),
    -- Of the queue, the role or the key.
    name TEXT NOT NULL CHECK ((name = '') = (scope = 'all')),
    paused_at INTEGER,
    running INTEGER CHECK (running >= 0),
    running_per_key INTEGER CHECK (running_per_key >= 0),
    per_minute INTEGER CHECK (per_minute >= 1),
    -- When the bucket behind per_minute is full again, in microseconds.
    full_at_us INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;

-- What models were asked, where requests or tokens per minute are limited. Microseconds.
CREATE TABLE rates (
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    requests_full_at_us INTEGER NOT NULL,
    tokens_full_at_us INTEGER NOT NULL,
    PRIMARY KEY (endpoint, model)
) STRICT, WITHOUT ROWID;

-- Endpoints that have failed since they last answered.
CREATE TABLE breakers (
    endpoint TEXT NOT NULL PRIMARY KEY,
    failures INTEGER NOT NULL CHECK (failures >= 0),
    failed_at INTEGER NOT NULL,
    rests INTEGER NOT NULL CHECK (rests >= 0),
    out_until INTEGER NOT NULL,
    probe_until INTEGER NOT NULL,
    reason TEXT
) STRICT, WITHOUT ROWID;
