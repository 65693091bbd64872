DROP INDEX memory_items_space;
DROP TRIGGER memory_items_vector_gone;
DROP TABLE vss_memory_items;
DROP TABLE memory_space;
UPDATE memory_items SET embedding = NULL, model = NULL, dimension = NULL WHERE embedding IS NOT NULL;
