-- Capacity states and the proofs that room can be made.

SET LOCAL search_path = lastgood;

-- What wakes somebody for a whole project is of no stage.
ALTER TABLE outbox ALTER COLUMN stage_id DROP NOT NULL, ALTER COLUMN number DROP NOT NULL;

-- Of the last backend total what the catalog knew as its own: the rest is there beside its sums.
ALTER TABLE capacity_counters ADD COLUMN backend_known_bytes bigint;

CREATE TABLE reach_proofs (                -- what collection could give back, by the gate's verdicts
  proof_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project     text NOT NULL REFERENCES projects,
  store       text NOT NULL REFERENCES stores,
  mark_id     bigint REFERENCES marks,
  reaches     boolean NOT NULL,
  document    jsonb NOT NULL,
  recorded_at timestamptz NOT NULL
);
CREATE INDEX reach_proofs_by_store ON reach_proofs (project, store, recorded_at);

CREATE TABLE capacity_states (             -- each change of where a project stands in a store
  project     text NOT NULL REFERENCES projects,
  store       text NOT NULL REFERENCES stores,
  number      bigint NOT NULL CHECK (number > 0),
  state       text NOT NULL CHECK (state IN ('open', 'soft', 'closed')),
  cause       text NOT NULL,
  numbers     jsonb NOT NULL,
  proof_id    bigint REFERENCES reach_proofs,
  actor       text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (project, store, number)
);
CREATE INDEX capacity_states_by_time ON capacity_states (project, recorded_at);

-- What was taken in the last day.
CREATE INDEX copies_taken ON copy_transitions (project, recorded_at)
  WHERE to_state = 'quarantined';

SELECT make_append_only('capacity_states'), make_append_only('reach_proofs');
