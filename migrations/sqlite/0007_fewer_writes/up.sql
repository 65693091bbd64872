-- A job's life in fewer writes. What an attempt leaves behind goes into the row that says that it
-- ended. And the job's row tells of the attempt that is under way, or completed the job: leased_by and
-- claimed_at stay with a completed job. An attempt that ended otherwise has a row in attempts.
ALTER TABLE jobs ADD COLUMN claimed_at INTEGER;
ALTER TABLE jobs ADD COLUMN output TEXT;
ALTER TABLE jobs ADD COLUMN reason TEXT;

UPDATE jobs SET (output, reason) = (SELECT output, reason FROM job_data WHERE job_id = jobs.id)
WHERE id IN (SELECT job_id FROM job_data WHERE output IS NOT NULL OR reason IS NOT NULL);

UPDATE jobs SET claimed_at = coalesce(
    (SELECT started_at FROM attempts WHERE job_id = jobs.id AND token = jobs.lease_token), created_at
) WHERE state = 'running';
DELETE FROM attempts WHERE ended_at IS NULL AND EXISTS (
    SELECT 1 FROM jobs WHERE id = attempts.job_id AND lease_token = attempts.token AND state = 'running'
);

ALTER TABLE job_data DROP COLUMN output;
ALTER TABLE job_data DROP COLUMN reason;

-- leased_by may stay when the lease ends. And the two checks of a job's state are said again with lists
-- of at most two names each: for a longer list SQLite builds a table of it every time a row is written,
-- which costs as much as writing the row. A changed CHECK changes nothing that is stored, so the
-- table's text may be changed in place; see https://www.sqlite.org/lang_altertable.html#otheralter.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(replace(replace(sql,
    'state IN (
        ''scheduled'', ''available'', ''running'', ''retryable'', ''suspended'',
        ''completed'', ''cancelled'', ''discarded''
    )',
    'state IN (''available'', ''running'') OR state IN (''completed'', ''scheduled'')
        OR state IN (''retryable'', ''suspended'') OR state IN (''cancelled'', ''discarded'')'),
    'state IN (''completed'', ''cancelled'', ''discarded'')',
    'state = ''completed'' OR state IN (''cancelled'', ''discarded'')'),
    '(leased_by IS NOT NULL) = (state = ''running'')',
    'leased_by IS NOT NULL OR state <> ''running''')
WHERE type = 'table' AND name = 'jobs';
PRAGMA writable_schema = RESET;
