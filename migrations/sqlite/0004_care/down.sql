DROP INDEX steps_blob;
ALTER TABLE workers DROP COLUMN drain_requested_at;
ALTER TABLE workers DROP COLUMN lease_ms;
DROP TABLE clock_jumps;
DROP TABLE duties;
DROP TABLE schedule_jobs;
DROP TABLE schedules;
