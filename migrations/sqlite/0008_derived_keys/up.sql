-- The key that a call hands to the outside world follows from the installation, the job and the call's
-- id, so it is made where it is needed and not kept with every call.
ALTER TABLE tool_calls DROP COLUMN effect_key;
