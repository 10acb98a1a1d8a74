-- What an attempt claims of its store: what it declared, and room for the manifest beside it.

SET LOCAL search_path = lastgood;

ALTER TABLE attempts ADD COLUMN claimed_bytes bigint;
UPDATE attempts SET claimed_bytes = declared_bytes;  -- what attempts of before have claimed
ALTER TABLE attempts ALTER COLUMN claimed_bytes SET NOT NULL,
  ADD CHECK (claimed_bytes >= declared_bytes);
