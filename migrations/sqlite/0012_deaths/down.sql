ALTER TABLE job_data DROP COLUMN max_crashes;
DROP TABLE deaths;
