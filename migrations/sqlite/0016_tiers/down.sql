DROP INDEX memory_items_threads;
DROP INDEX memory_items_core;
