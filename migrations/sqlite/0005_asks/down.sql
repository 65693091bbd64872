DROP TABLE memory_items;
DROP TABLE asks;
