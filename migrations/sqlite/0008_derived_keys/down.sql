-- Calls get their keys from the program, which an older one reads from here: they cannot be made in SQL.
ALTER TABLE tool_calls ADD COLUMN effect_key TEXT NOT NULL DEFAULT '';
