-- Kept inventories of stores and what the reports say of them.

SET LOCAL search_path = lastgood;
