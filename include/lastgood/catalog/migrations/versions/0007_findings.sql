-- Findings followed across days, and alerts about them.

SET LOCAL search_path = lastgood;
