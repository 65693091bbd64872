INSERT INTO rules (scope, name, paused_at, running, running_per_key, per_minute, full_at_us, fair)
    SELECT scope, name, paused_at, running, running_per_key, per_minute, full_at_us, fair FROM limits
    WHERE scope = 'queue';
DROP VIEW limits;
DROP TABLE queues;
