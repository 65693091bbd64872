-- Concurrency keys that take turns.
ALTER TABLE rules ADD COLUMN fair INTEGER NOT NULL DEFAULT 0 CHECK (fair IN (0, 1));

-- Who had the last turn, where keys take turns. Changes with the claim that gives the turn.
CREATE TABLE turns (
    role TEXT NOT NULL,
    -- The queues whose keys take turns, in order and with commas between them; empty for all.
    scope TEXT NOT NULL,
    queue TEXT NOT NULL,
    -- The concurrency key; empty for the jobs without one.
    key TEXT NOT NULL,
    PRIMARY KEY (role, scope)
) STRICT, WITHOUT ROWID;
