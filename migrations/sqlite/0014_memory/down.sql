DROP TRIGGER memory_items_gone;
DROP TABLE memory_words;
CREATE TABLE memory_items_before AS SELECT * FROM memory_items;
DROP TABLE memory_items;
CREATE TABLE memory_items (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL,
    tier TEXT NOT NULL CHECK (tier IN ('archival')),
    content TEXT NOT NULL,
    job_id INTEGER REFERENCES jobs (id) ON DELETE SET NULL,
    seq INTEGER,
    created_at INTEGER NOT NULL
) STRICT;
INSERT INTO memory_items (id, scope, tier, content, job_id, seq, created_at)
    SELECT id, scope, tier, content, job_id, seq, created_at FROM memory_items_before
    WHERE tier = 'archival' AND step IS NULL AND job_id IS NOT NULL;
DROP TABLE memory_items_before;
CREATE UNIQUE INDEX memory_items_source ON memory_items (job_id, seq) WHERE job_id IS NOT NULL;
