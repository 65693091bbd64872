DROP INDEX sessions_lower_name;
DROP INDEX sessions_previous;
DROP INDEX sessions_deleted;
ALTER TABLE sessions DROP COLUMN deleted_at;
DROP TABLE retention;
