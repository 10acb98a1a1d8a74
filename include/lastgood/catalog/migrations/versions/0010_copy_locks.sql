-- What a look found locked of a copy: retention, a legal hold, or a lock that may not be seen.

SET LOCAL search_path = lastgood;

CREATE TABLE copy_locks (
  look_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project     text NOT NULL REFERENCES projects,
  copy_id     bigint NOT NULL REFERENCES copies,
  versions    integer NOT NULL CHECK (versions >= 0),  -- 0: nothing is locked any more
  bytes       bigint NOT NULL CHECK (bytes >= 0),      -- of the locked versions
  ends_at     timestamptz,                             -- of the last lock; NULL: nobody knows
  seen        boolean NOT NULL,                        -- false: a lock may not be asked for
  reason      text NOT NULL,
  recorded_at timestamptz NOT NULL
);
CREATE INDEX copy_locks_by_copy ON copy_locks (copy_id, look_id DESC);
CREATE INDEX copy_locks_by_project ON copy_locks (project, copy_id);

SELECT make_append_only('copy_locks');
