-- The inventory of incomplete uploads.

SET LOCAL search_path = lastgood;
