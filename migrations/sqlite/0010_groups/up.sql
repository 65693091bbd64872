-- Jobs that wait for whole groups. Whom they wait for in it is in dependencies, like everything that is waited
-- for; this tells which groups, so that jobs which join one later are waited for too. Open while the job has
-- not begun and waits.
CREATE TABLE group_waits (
    job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    group_name TEXT NOT NULL,
    on_failed TEXT NOT NULL CHECK (on_failed IN ('cancel', 'run', 'wait')),
    open INTEGER NOT NULL CHECK (open IN (0, 1)),
    PRIMARY KEY (job_id, group_name)
) STRICT, WITHOUT ROWID;

CREATE INDEX group_waits_open ON group_waits (group_name, job_id) WHERE open = 1;
