-- Memory that outlives the conversation it comes from: what agents and people save, and what left conversations.
-- Made anew, for a condition of a column cannot be widened.
CREATE TABLE memory_items_before AS SELECT * FROM memory_items;
DROP TABLE memory_items;

CREATE TABLE memory_items (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- Whose it is: a persona's role, or 'shared'.
    scope TEXT NOT NULL,
    tier TEXT NOT NULL CHECK (tier IN ('core', 'session', 'working', 'archival')),
    content TEXT NOT NULL,
    -- An object as JSON, sealed like the content.
    metadata TEXT,
    -- A list of words as JSON.
    tags TEXT NOT NULL DEFAULT '[]',
    -- Where it comes from: the job, and the entry that took it out of the conversation. Of what was saved, a number of
    -- its own beside the time, which its seals are bound to.
    job_id INTEGER REFERENCES jobs (id) ON DELETE SET NULL,
    seq INTEGER,
    -- The entry of the job's journal before which it was saved; absent for what left a conversation.
    step INTEGER,
    -- Who saved it: a persona's role, or 'person'; and by which tool.
    author TEXT NOT NULL DEFAULT '',
    tool TEXT,
    -- Whether its author had read what others wrote, and what that was.
    untrusted INTEGER NOT NULL DEFAULT 1 CHECK (untrusted IN (0, 1)),
    source TEXT,
    -- The conversation it is a part of, and its place there: what stands beside it there is its context.
    thread TEXT,
    place INTEGER,
    -- What it says, in a form in which the same is the same; absent for what left a conversation.
    fingerprint BLOB,
    -- The call that saved it. A call that is made again saves nothing new.
    effect_key TEXT,
    version INTEGER NOT NULL DEFAULT 1,
    supersedes INTEGER,
    superseded_by INTEGER,
    -- Since when it does not hold any more, and why.
    ended_at INTEGER,
    reason TEXT,
    -- Rises with every change of any item, so that whoever holds a copy finds what changed.
    revision INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    -- Its meaning as numbers, who made them, and how many there are.
    embedding BLOB,
    model TEXT,
    dimension INTEGER,
    CHECK ((embedding IS NULL) = (model IS NULL) AND (embedding IS NULL) = (dimension IS NULL)),
    CHECK ((thread IS NULL) = (place IS NULL)),
    CHECK (superseded_by IS NULL OR ended_at IS NOT NULL)
) STRICT;

INSERT INTO memory_items (id, scope, tier, content, job_id, seq, author, source, thread, place, revision, created_at)
    SELECT id, scope, tier, content, job_id, seq, scope, 'conversation', 'archive ' || coalesce(job_id, -id),
        coalesce(seq, 0), id, created_at
    FROM memory_items_before;
DROP TABLE memory_items_before;

-- A worker that died after archiving archives the same again.
CREATE UNIQUE INDEX memory_items_source ON memory_items (job_id, seq) WHERE job_id IS NOT NULL AND step IS NULL;
CREATE INDEX memory_items_job ON memory_items (job_id) WHERE job_id IS NOT NULL;
CREATE UNIQUE INDEX memory_items_effect ON memory_items (effect_key) WHERE effect_key IS NOT NULL;
CREATE UNIQUE INDEX memory_items_thread ON memory_items (scope, thread, place)
    WHERE thread IS NOT NULL AND ended_at IS NULL;
CREATE INDEX memory_items_same ON memory_items (scope, fingerprint)
    WHERE fingerprint IS NOT NULL AND ended_at IS NULL;
CREATE INDEX memory_items_revision ON memory_items (revision);

-- The words of each item that holds, and those of what stands beside it. Nothing stands here of a text that is sealed.
CREATE VIRTUAL TABLE memory_words USING fts5 (content, around, tokenize = 'porter unicode61 remove_diacritics 2');
-- What is deleted here is not kept until the index is next tidied up.
INSERT INTO memory_words (memory_words, rank) VALUES ('secure-delete', 1);

CREATE TRIGGER memory_items_gone AFTER DELETE ON memory_items BEGIN
    DELETE FROM memory_words WHERE rowid = old.id;
END;

INSERT INTO memory_words (rowid, content, around)
    SELECT id, content, substr(coalesce(lag(content) OVER beside, ''), 1, 2000) || char(10)
        || substr(coalesce(lead(content) OVER beside, ''), 1, 2000)
    FROM memory_items
    -- Neither a sealed text nor one that is marked as clear.
    WHERE substr(content, 1, 1) <> char(1)
    WINDOW beside AS (PARTITION BY scope, thread ORDER BY place);
