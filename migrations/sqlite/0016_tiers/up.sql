-- What runs begin with is looked up for each of them.
CREATE INDEX memory_items_core ON memory_items (scope, thread) WHERE tier = 'core' AND ended_at IS NULL;
-- All that a conversation or a block ever was, what holds no more too.
CREATE INDEX memory_items_threads ON memory_items (scope, thread, place) WHERE thread IS NOT NULL;
