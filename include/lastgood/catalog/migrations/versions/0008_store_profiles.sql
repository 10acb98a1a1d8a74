-- What stores were found to do, and the store that is this database.

SET LOCAL search_path = lastgood;
