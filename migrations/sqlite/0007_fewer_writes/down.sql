INSERT INTO attempts (job_id, token, number, worker, started_at, ended_at, outcome)
SELECT id, lease_token, attempt, leased_by, claimed_at, finalized_at, iif(finalized_at IS NULL, NULL, 'completed')
FROM jobs WHERE leased_by IS NOT NULL;
UPDATE jobs SET leased_by = NULL WHERE state <> 'running';

ALTER TABLE job_data ADD COLUMN output TEXT;
ALTER TABLE job_data ADD COLUMN reason TEXT;
UPDATE job_data SET (output, reason) = (SELECT output, reason FROM jobs WHERE id = job_id);

ALTER TABLE jobs DROP COLUMN reason;
ALTER TABLE jobs DROP COLUMN output;
ALTER TABLE jobs DROP COLUMN claimed_at;

PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql,
    'leased_by IS NOT NULL OR state <> ''running''',
    '(leased_by IS NOT NULL) = (state = ''running'')')
WHERE type = 'table' AND name = 'jobs';
PRAGMA writable_schema = RESET;
