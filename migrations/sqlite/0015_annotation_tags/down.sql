DROP TRIGGER annotations_tagged;
DROP TABLE annotation_tags;
