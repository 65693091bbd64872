-- What is remembered is found by its meaning too: vectors of items, those of one model at a time.

-- The model whose vectors are compared, how many numbers they have, and when the process began that chose it. While
-- vectors that were there already are put into the index: the last item that was looked at.
CREATE TABLE memory_space (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL CHECK (dimension > 0),
    chosen_at INTEGER NOT NULL,
    filled_through INTEGER
) STRICT;

-- Of each item that holds and has a vector of that model: the signs of its numbers, by which it is looked for, and the
-- numbers, with something of those beside it. Made anew for a model with more or fewer. Empty where texts are sealed.
CREATE VIRTUAL TABLE vss_memory_items USING vec0 (
    id INTEGER PRIMARY KEY, scope TEXT PARTITION KEY, signs bit[384], +vector BLOB
);

CREATE TRIGGER memory_items_vector_gone AFTER DELETE ON memory_items BEGIN
    DELETE FROM vss_memory_items WHERE id = old.id;
END;

-- Which items lack a vector of a model, and which have one.
CREATE INDEX memory_items_space ON memory_items (model, dimension) WHERE ended_at IS NULL;
