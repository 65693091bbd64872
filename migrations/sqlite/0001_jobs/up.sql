-- Times are milliseconds since 1970-01-01T00:00:00Z. JSON is kept as TEXT, hashes are SHA-256.

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Part of every effect key, so that two databases never send the world the same key.
INSERT INTO meta (key, value) VALUES ('installation', lower(hex(randomblob(16))));

-- The hot row: what a claim reads and changes. Payloads are in job_data.
CREATE TABLE jobs (
    -- AUTOINCREMENT: an id is never used again, even after its job is deleted; effect keys and
    -- leases count on it.
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    role TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'scheduled', 'available', 'running', 'retryable', 'suspended',
        'completed', 'cancelled', 'discarded'
    )),
    priority INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 9),
    run_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt BETWEEN 0 AND max_attempts),
    max_attempts INTEGER NOT NULL CHECK (max_attempts >= 1),
    crashes INTEGER NOT NULL CHECK (crashes >= 0),
    -- Rises with every claim of this job, and never falls.
    lease_token INTEGER NOT NULL CHECK (lease_token >= 0),
    lease_until INTEGER CHECK ((lease_until IS NOT NULL) = (state = 'running')),
    leased_by TEXT CHECK ((leased_by IS NOT NULL) = (state = 'running')),
    cancel_requested INTEGER NOT NULL CHECK (cancel_requested IN (0, 1)),
    created_at INTEGER NOT NULL,
    finalized_at INTEGER CHECK (
        (finalized_at IS NOT NULL) = (state IN ('completed', 'cancelled', 'discarded'))
    )
) STRICT;

-- Each index holds only the rows its one query is after; a job at rest is in the last one alone.
-- SQLite uses a partial index only where the query spells the same condition with literals.
CREATE INDEX jobs_claim ON jobs (role, priority, run_at, id, queue) WHERE state = 'available';
CREATE INDEX jobs_due ON jobs (run_at) WHERE state IN ('scheduled', 'retryable');
CREATE INDEX jobs_lease ON jobs (lease_until, leased_by) WHERE state = 'running';
CREATE INDEX jobs_cancel ON jobs (id) WHERE state = 'running' AND cancel_requested = 1;
CREATE INDEX jobs_suspended ON jobs (id, role) WHERE state = 'suspended';
CREATE INDEX jobs_final ON jobs (state, id, role) WHERE finalized_at IS NOT NULL;

CREATE TABLE job_data (
    job_id INTEGER NOT NULL PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    payload TEXT NOT NULL,
    output TEXT,
    reason TEXT
) STRICT;

-- One row per claim. Its number repeats when an attempt is given back; its token does not.
CREATE TABLE attempts (
    job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    token INTEGER NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    outcome TEXT CHECK ((outcome IS NOT NULL) = (ended_at IS NOT NULL)),
    reason TEXT,
    PRIMARY KEY (job_id, token)
) STRICT, WITHOUT ROWID;

-- Large parts of journal entries, each content once.
CREATE TABLE blobs (
    hash BLOB NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

-- The journal. Rows are added and never changed.
CREATE TABLE steps (
    job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL CHECK (seq >= 0),
    kind TEXT NOT NULL,
    -- The entry's JSON, without the field that is kept in blobs.
    data TEXT NOT NULL,
    blob_hash BLOB REFERENCES blobs (hash),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (job_id, seq)
) STRICT, WITHOUT ROWID;

-- The ledger. Follows the journal: a row changes only with the entry it comes from.
CREATE TABLE tool_calls (
    job_id INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    tool TEXT NOT NULL,
    effect_class TEXT NOT NULL CHECK (effect_class IN ('pure', 'idempotent', 'once')),
    effect_key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'proposed', 'started', 'done', 'failed', 'refused', 'unknown'
    )),
    changed_at INTEGER NOT NULL,
    -- The order of calls within the job.
    position INTEGER NOT NULL,
    PRIMARY KEY (job_id, call_id),
    FOREIGN KEY (job_id, seq) REFERENCES steps (job_id, seq) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE annotations (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    author TEXT NOT NULL,
    text TEXT NOT NULL,
    -- A JSON array of words.
    tags TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX annotations_job ON annotations (job_id, id);

CREATE TABLE workers (
    id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started INTEGER NOT NULL,
    -- A JSON array of roles.
    roles TEXT NOT NULL,
    slots INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
