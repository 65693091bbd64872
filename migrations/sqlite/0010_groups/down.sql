DROP TABLE group_waits;
