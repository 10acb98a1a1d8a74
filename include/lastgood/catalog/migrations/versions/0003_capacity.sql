-- Capacity states and the proofs that room can be made.

SET LOCAL search_path = lastgood;
