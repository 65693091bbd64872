-- Queues of which something is said. All others are a name on jobs alone.
CREATE TABLE queues (
    name TEXT NOT NULL PRIMARY KEY CHECK (name <> ''),
    -- Since when none of its jobs starts.
    paused_at INTEGER,
    -- How many of its jobs run at once, and with the same concurrency key, and start in a minute.
    running INTEGER CHECK (running >= 0),
    running_per_key INTEGER CHECK (running_per_key >= 0),
    per_minute INTEGER CHECK (per_minute >= 1),
    -- Whether its concurrency keys take turns.
    fair INTEGER NOT NULL CHECK (fair IN (0, 1)),
    -- When the bucket behind per_minute is full again, in microseconds.
    full_at_us INTEGER NOT NULL,
    -- What a job begins with where neither who asks for it nor its persona says.
    priority INTEGER CHECK (priority BETWEEN 1 AND 9),
    priority_step_ms INTEGER CHECK (priority_step_ms >= 0),
    max_attempts INTEGER CHECK (max_attempts >= 1),
    -- How long its jobs are kept after their end; as the database says where absent, for ever where -1.
    keep_completed_ms INTEGER CHECK (keep_completed_ms >= -1),
    keep_cancelled_ms INTEGER CHECK (keep_cancelled_ms >= -1),
    keep_discarded_ms INTEGER CHECK (keep_discarded_ms >= -1),
    -- Since when something is said of it.
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO queues (name, paused_at, running, running_per_key, per_minute, fair, full_at_us, created_at)
    SELECT name, paused_at, running, running_per_key, per_minute, fair, full_at_us, unixepoch() * 1000
    FROM rules WHERE scope = 'queue';
DELETE FROM rules WHERE scope = 'queue';

-- What holds for jobs that may start, of all scopes; one read for each claim.
CREATE VIEW limits AS
    SELECT scope, name, paused_at, running, running_per_key, per_minute, full_at_us, fair FROM rules
    UNION ALL
    -- As text, of which a column is and a literal is not: so SQLite reads both tables without a table between.
    SELECT CAST('queue' AS TEXT), name, paused_at, running, running_per_key, per_minute, full_at_us, fair FROM queues
    WHERE paused_at IS NOT NULL OR running IS NOT NULL OR running_per_key IS NOT NULL OR per_minute IS NOT NULL
        OR fair = 1;
