-- The inventory of incomplete uploads.

SET LOCAL search_path = lastgood;

-- What was ever found unfinished, a row for each upload, and one for the objects that an attempt left
-- beside its uploads (then `key` is its prefix and `upload_id` is empty).
CREATE TABLE incomplete_uploads (
  entry_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project       text NOT NULL REFERENCES projects,
  store         text NOT NULL REFERENCES stores,
  key           text NOT NULL,
  upload_id     text NOT NULL,
  attempt_id    uuid REFERENCES attempts,  -- NULL: below no attempt's prefix
  source        text NOT NULL CHECK (source IN ('recorded', 'listed')), -- who told of it first
  owner         text NOT NULL,
  initiated_at  timestamptz,               -- by the store's clock: for people
  first_seen_at timestamptz NOT NULL,
  listed_at     timestamptz,               -- cache: the newest listing that showed it; NULL: none did
  parts         integer,                   -- cache: held then; of an attempt's objects, their number
  part_bytes    bigint,                    -- cache: held then
  state         text NOT NULL CHECK (state IN
                  ('waiting', 'reported', 'fenced', 'aborting', 'gone', 'continued')), -- cache
  state_at      timestamptz NOT NULL,                                                  -- cache
  changes       integer NOT NULL,                                                      -- cache
  tries         integer NOT NULL DEFAULT 0,                                            -- cache
  UNIQUE (store, key, upload_id)
);
CREATE INDEX incomplete_uploads_left ON incomplete_uploads (project, store)
  WHERE state NOT IN ('gone', 'continued');
CREATE INDEX incomplete_uploads_by_attempt ON incomplete_uploads (attempt_id);

CREATE TABLE incomplete_upload_states (
  entry_id    bigint NOT NULL REFERENCES incomplete_uploads,
  number      integer NOT NULL,
  project     text NOT NULL,
  state       text NOT NULL,
  reason      text NOT NULL,
  facts       jsonb NOT NULL,              -- of `gone`: the proof
  actor       text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (entry_id, number)
);
SELECT make_append_only('lastgood.incomplete_upload_states');

CREATE TABLE incomplete_upload_tries (     -- each abort and what came of it
  entry_id    bigint NOT NULL REFERENCES incomplete_uploads,
  number      integer NOT NULL,
  project     text NOT NULL,
  outcome     text NOT NULL CHECK (outcome IN ('gone', 'absent', 'failed')),
  part_bytes  bigint NOT NULL,             -- held just before
  reason      text,
  actor       text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (entry_id, number)
);
SELECT make_append_only('lastgood.incomplete_upload_tries');

-- Uploads in a store that are below no project's prefix: their number at each look, never their names.
CREATE TABLE foreign_upload_counts (
  store       text NOT NULL REFERENCES stores,
  number      bigint NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (store)
);

-- What a bucket's own rule for incomplete uploads was found to be; written when it changed, and daily.
CREATE TABLE lifecycle_checks (
  check_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  store           text NOT NULL REFERENCES stores,
  state           text NOT NULL CHECK (state IN
                    ('kept', 'absent', 'too-short', 'unsupported', 'refused', 'unreadable')),
  says            text NOT NULL,
  days            integer,                 -- of the rule that reaches our uploads first
  needed_days     integer NOT NULL,
  rules           jsonb NOT NULL,          -- all of the bucket's, as they were read
  actor           text NOT NULL,
  recorded_at     timestamptz NOT NULL
);
CREATE INDEX lifecycle_checks_newest ON lifecycle_checks (store, check_id DESC);
SELECT make_append_only('lastgood.lifecycle_checks');

-- How long uploads take is read from the times at which attempts were sealed.
CREATE INDEX attempt_transitions_sealed ON attempt_transitions (project, recorded_at)
  WHERE to_state = 'sealed';
