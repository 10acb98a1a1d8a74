-- What stores were found to do, and the store that is this database.

SET LOCAL search_path = lastgood;

-- One probe of a store. `place` says where it was (kind, bucket or folder, prefix, encryption): a
-- profile says nothing of another place.
CREATE TABLE store_profiles (
  store_profile_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  store            text NOT NULL REFERENCES stores,
  place            jsonb NOT NULL,
  probe_version    integer NOT NULL CHECK (probe_version > 0),
  document         jsonb NOT NULL,
  recorded_by      text NOT NULL,
  recorded_at      timestamptz NOT NULL DEFAULT catalog_clock()
);
CREATE INDEX ON store_profiles (store, store_profile_id DESC);
SELECT make_append_only('store_profiles');
