-- Deletion certificates by day, and drills.

SET LOCAL search_path = lastgood;

CREATE TABLE certificates (                -- of a tombstone whose bytes are proven gone
  certificate  text PRIMARY KEY,           -- SHA-256 of its canonical body
  project      text NOT NULL,
  stage_id     bigint NOT NULL,
  number       bigint NOT NULL,            -- position in the stage's chain
  previous     text,                       -- the certificate before it
  tombstone_id uuid NOT NULL UNIQUE REFERENCES tombstones,
  body         jsonb NOT NULL,
  recorded_at  timestamptz NOT NULL,
  UNIQUE (stage_id, number),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
SELECT make_append_only('certificates');
CREATE INDEX certificates_by_time ON certificates (project, recorded_at);
CREATE INDEX tombstones_by_time ON tombstones (project, recorded_at);

-- What a project's history has at its end is asked for by every decision.
CREATE INDEX holds_by_time ON holds (project, recorded_at);
CREATE INDEX hold_releases_by_time ON hold_releases (project, recorded_at);

CREATE TABLE daily_digests (               -- one for each day in UTC since the first deletion
  project     text NOT NULL REFERENCES projects,
  day         date NOT NULL,
  number      bigint NOT NULL,             -- position in the project's chain
  previous    text,                        -- digest of the day before it
  digest      text NOT NULL UNIQUE,        -- SHA-256 of its canonical body
  body        jsonb NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (project, day),
  UNIQUE (project, number)
);
SELECT make_append_only('daily_digests');

CREATE TABLE scratch_projects (            -- where drills write, one for each store
  project     text PRIMARY KEY REFERENCES projects,
  store       text NOT NULL UNIQUE REFERENCES stores,
  recorded_at timestamptz NOT NULL
);
SELECT make_append_only('scratch_projects');

CREATE TABLE drills (
  drill_id    uuid PRIMARY KEY,
  project     text NOT NULL REFERENCES projects,
  actor       text NOT NULL,
  plan        jsonb NOT NULL,              -- how many stages, within how many seconds each
  recorded_at timestamptz NOT NULL
);
SELECT make_append_only('drills');
CREATE INDEX drills_by_project ON drills (project, recorded_at);
CREATE TABLE drill_restores (              -- one stage's last good checkpoint, as a recovery gets it
  drill_id      uuid NOT NULL REFERENCES drills,
  project       text NOT NULL,
  stage_id      bigint NOT NULL,
  checkpoint_id bigint REFERENCES checkpoints,
  passed        boolean NOT NULL,
  result        jsonb NOT NULL,
  recorded_at   timestamptz NOT NULL,
  PRIMARY KEY (drill_id, stage_id),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
SELECT make_append_only('drill_restores');
CREATE INDEX drill_restores_by_stage ON drill_restores (stage_id, recorded_at);
CREATE TABLE drill_expectations (          -- what the life of a scratch checkpoint had to show
  drill_id    uuid NOT NULL REFERENCES drills,
  number      integer NOT NULL,
  project     text NOT NULL,
  expectation text NOT NULL,
  passed      boolean NOT NULL,
  evidence    text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (drill_id, number)
);
SELECT make_append_only('drill_expectations');
CREATE TABLE drill_ends (                  -- a drill without one was cut off
  drill_id    uuid PRIMARY KEY REFERENCES drills,
  project     text NOT NULL,
  passed      boolean NOT NULL,
  recorded_at timestamptz NOT NULL
);
SELECT make_append_only('drill_ends');
