-- What waits for people. A question is made by the journal entry at `seq`, in its transaction, and
-- settling it appends the entry that tells the run.
CREATE TABLE asks (
    -- AUTOINCREMENT: people write these numbers down.
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    -- Its place among those asked by the same entry.
    position INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('question')),
    text TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'answered', 'expired', 'closed')),
    answer TEXT CHECK ((answer IS NOT NULL) = (state = 'answered')),
    settled_by TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    settled_at INTEGER CHECK ((settled_at IS NOT NULL) = (state <> 'open')),
    UNIQUE (job_id, seq, position)
) STRICT;

CREATE INDEX asks_open ON asks (id) WHERE state = 'open';
CREATE INDEX asks_expiry ON asks (expires_at) WHERE state = 'open' AND expires_at IS NOT NULL;

-- Memory that outlives the conversation it comes from.
CREATE TABLE memory_items (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- Whose it is: a persona's role.
    scope TEXT NOT NULL,
    tier TEXT NOT NULL CHECK (tier IN ('archival')),
    content TEXT NOT NULL,
    -- Where it comes from: the job, and the entry that took it out of the conversation.
    job_id INTEGER REFERENCES jobs (id) ON DELETE SET NULL,
    seq INTEGER,
    created_at INTEGER NOT NULL
) STRICT;

-- A worker that died after archiving archives the same again.
CREATE UNIQUE INDEX memory_items_source ON memory_items (job_id, seq) WHERE job_id IS NOT NULL;
