ALTER TABLE job_data ADD COLUMN output TEXT;
ALTER TABLE job_data ADD COLUMN reason TEXT;
UPDATE job_data SET (output, reason) = (SELECT output, reason FROM jobs WHERE id = job_id);

INSERT INTO attempts (job_id, token, number, worker, started_at)
SELECT id, lease_token, attempt, leased_by, claimed_at FROM jobs WHERE state = 'running';

ALTER TABLE jobs DROP COLUMN reason;
ALTER TABLE jobs DROP COLUMN output;
ALTER TABLE jobs DROP COLUMN claimed_at;
