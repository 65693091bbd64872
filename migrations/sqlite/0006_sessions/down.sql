DROP TABLE session_summaries;
DROP TABLE session_jobs;
DROP TABLE sessions;
