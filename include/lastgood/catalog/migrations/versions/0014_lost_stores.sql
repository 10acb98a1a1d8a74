-- Stores that were given up with what lay in them.

SET LOCAL search_path = lastgood;

-- A lost copy is no deletion: nothing proves it, and a tombstone of it stays without a proof.
ALTER TABLE copies
  DROP CONSTRAINT copies_state_check,
  ADD CONSTRAINT copies_state_check
    CHECK (state IN ('present', 'quarantined', 'deleting', 'deleted', 'lost'));

ALTER TABLE incomplete_uploads
  DROP CONSTRAINT incomplete_uploads_state_check,
  ADD CONSTRAINT incomplete_uploads_state_check
    CHECK (state IN ('waiting', 'reported', 'fenced', 'aborting', 'gone', 'continued', 'lost'));
DROP INDEX incomplete_uploads_left;
CREATE INDEX incomplete_uploads_left ON incomplete_uploads (project, store)
  WHERE state NOT IN ('gone', 'continued', 'lost');

ALTER TABLE store_registrations
  DROP CONSTRAINT store_registrations_kind_check,
  ADD CONSTRAINT store_registrations_kind_check
    CHECK (kind IN ('unregistered', 'registered', 'lost'));
