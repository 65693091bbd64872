-- The tags of remarks once more, to find remarks by them.
CREATE TABLE annotation_tags (
    tag TEXT NOT NULL,
    annotation_id INTEGER NOT NULL REFERENCES annotations (id) ON DELETE CASCADE,
    PRIMARY KEY (tag, annotation_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX annotation_tags_annotation ON annotation_tags (annotation_id);

-- By the database itself: a worker of the version before, which knows nothing of this table, makes remarks beside
-- workers of this one.
CREATE TRIGGER annotations_tagged AFTER INSERT ON annotations WHEN json_valid(NEW.tags) BEGIN
    INSERT OR IGNORE INTO annotation_tags (tag, annotation_id)
        SELECT value, NEW.id FROM json_each(NEW.tags) WHERE type = 'text';
END;

INSERT OR IGNORE INTO annotation_tags (tag, annotation_id)
    SELECT tag.value, annotations.id FROM annotations, json_each(annotations.tags) AS tag
    WHERE json_valid(annotations.tags) AND tag.type = 'text';
