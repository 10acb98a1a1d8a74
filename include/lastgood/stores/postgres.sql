-- The tables of one store, in a schema of its own. A key is text in byte order; bytes lie in chunks
-- that are never compressed, so that a range of them is read without its neighbours.

CREATE TABLE IF NOT EXISTS uploads (
  upload_id    uuid PRIMARY KEY,
  key          text COLLATE "C" NOT NULL,
  size_bytes   bigint NOT NULL,
  part_bytes   bigint NOT NULL,
  initiated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS uploads_by_key ON uploads (key, upload_id);

CREATE TABLE IF NOT EXISTS objects (
  object_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key         text COLLATE "C" NOT NULL,
  hidden      boolean NOT NULL DEFAULT false,     -- it lies in quarantine
  size_bytes  bigint NOT NULL,
  modified_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (key, hidden)
);

-- A part belongs to its upload until that is completed, and to the object from then on: completion
-- moves no bytes. One without a digest is still being received, or its writer died.
CREATE TABLE IF NOT EXISTS parts (
  part_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  upload_id  uuid REFERENCES uploads ON DELETE CASCADE,
  object_id  bigint REFERENCES objects ON DELETE CASCADE,
  number     integer NOT NULL,
  start      bigint NOT NULL,                     -- the offset of its first byte in the object
  size_bytes bigint NOT NULL,
  sha256     text,
  CHECK ((upload_id IS NULL) <> (object_id IS NULL)),
  CHECK (object_id IS NULL OR sha256 IS NOT NULL)
);
CREATE UNIQUE INDEX IF NOT EXISTS parts_of_upload ON parts (upload_id, number)
  WHERE sha256 IS NOT NULL;
CREATE INDEX IF NOT EXISTS unfinished_parts ON parts (upload_id) WHERE sha256 IS NULL;
CREATE UNIQUE INDEX IF NOT EXISTS parts_of_object ON parts (object_id, start, number);

CREATE TABLE IF NOT EXISTS chunks (
  part_id bigint NOT NULL REFERENCES parts ON DELETE CASCADE,
  number  integer NOT NULL,
  bytes   bytea NOT NULL,
  PRIMARY KEY (part_id, number)
);
ALTER TABLE chunks ALTER COLUMN bytes SET STORAGE EXTERNAL;
