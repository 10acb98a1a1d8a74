-- What a look found locked of what an attempt left, as `copy_locks` has it of copies.

SET LOCAL search_path = lastgood;

CREATE TABLE attempt_locks (
  look_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project     text NOT NULL REFERENCES projects,
  attempt_id  uuid NOT NULL REFERENCES attempts,
  versions    integer NOT NULL CHECK (versions >= 0),  -- 0: nothing is locked any more
  bytes       bigint NOT NULL CHECK (bytes >= 0),      -- of the locked versions
  ends_at     timestamptz,                             -- of the last lock; NULL: nobody knows
  seen        boolean NOT NULL,                        -- false: a lock may not be asked for
  reason      text NOT NULL,
  recorded_at timestamptz NOT NULL
);
CREATE INDEX attempt_locks_by_attempt ON attempt_locks (attempt_id, look_id DESC);

SELECT make_append_only('attempt_locks');
