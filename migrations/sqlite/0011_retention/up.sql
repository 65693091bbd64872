-- How long what has ended is kept: one rule for the database, whoever works on it. Without rows nobody has said.
CREATE TABLE retention (
    kind TEXT NOT NULL PRIMARY KEY,
    -- In milliseconds; for ever without one.
    keep_ms INTEGER CHECK (keep_ms >= 0)
) STRICT, WITHOUT ROWID;

-- A session that was deleted is nobody's from that moment on. Its row stays until the last of its jobs is gone, so
-- that whoever is interrupted in between can go on.
ALTER TABLE sessions ADD COLUMN deleted_at INTEGER;

CREATE INDEX sessions_deleted ON sessions (id) WHERE deleted_at IS NOT NULL;
-- Who remembers a session: asked before it goes, and when it does.
CREATE INDEX sessions_previous ON sessions (previous_id) WHERE previous_id IS NOT NULL;
-- Names that differ in case alone are one name: they become folders.
CREATE INDEX sessions_lower_name ON sessions (lower(name)) WHERE name IS NOT NULL;
