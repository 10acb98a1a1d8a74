-- Deletion certificates by day, and drills.

SET LOCAL search_path = lastgood;
