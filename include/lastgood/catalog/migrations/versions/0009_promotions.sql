-- Promotions of policies, and replayed marks.

SET LOCAL search_path = lastgood;
