-- The catalog. Every row carries its project; only places for bytes and the catalog's own identity
-- belong to none. Tables named in the last block are append-only: grants and triggers refuse UPDATE,
-- DELETE and TRUNCATE on them. A column described as a cache repeats the last row of a history table
-- and is written in the same transaction.

CREATE SCHEMA lastgood;
SET LOCAL search_path = lastgood;

-- The one clock. Everything that needs the time calls this function.
CREATE FUNCTION catalog_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS 'SELECT clock_timestamp()';

CREATE TABLE identity (
  only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  catalog_id  uuid NOT NULL DEFAULT gen_random_uuid(),
  incarnation bigint NOT NULL DEFAULT 1,
  created_at  timestamptz NOT NULL DEFAULT catalog_clock()
);
INSERT INTO identity DEFAULT VALUES;

CREATE TABLE rebuilds (                    -- each made the incarnation that it is named by
  incarnation         bigint PRIMARY KEY,
  rebuild_id          uuid NOT NULL UNIQUE,
  catalog_id          uuid NOT NULL,       -- the one that the stores named
  previous_catalog_id uuid NOT NULL,       -- what this catalog was before: the same, if outdated
  stores              jsonb NOT NULL,
  actor               text NOT NULL,
  because             text NOT NULL,
  recorded_at         timestamptz NOT NULL
);
CREATE TABLE rebuild_ends (                -- until it has one, the catalog serves nothing
  incarnation bigint PRIMARY KEY REFERENCES rebuilds,
  result      jsonb NOT NULL,
  recorded_at timestamptz NOT NULL
);

-- Clock ------------------------------------------------------------------------------------------

CREATE TABLE clock_readings (              -- the newest reading of each boot of each machine
  boot_id      text PRIMARY KEY,
  catalog_at   timestamptz NOT NULL,
  monotonic_ns bigint NOT NULL
);
CREATE TABLE clock_jumps (
  jump_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  observed_at  timestamptz NOT NULL,
  jump_seconds double precision NOT NULL,
  boot_id      text NOT NULL
);
CREATE TABLE clock_acceptances (
  jump_id     bigint PRIMARY KEY REFERENCES clock_jumps,
  accepted_by text NOT NULL,
  because     text NOT NULL,
  recorded_at timestamptz NOT NULL
);

-- What operators configure -------------------------------------------------------------------------

CREATE TABLE stores (
  store          text PRIMARY KEY,
  kind           text NOT NULL CHECK (kind IN ('file', 's3', 'postgres')),
  config         jsonb NOT NULL,
  failure_domain text NOT NULL,
  tier           text NOT NULL,
  applied_at     timestamptz NOT NULL DEFAULT catalog_clock()
);

CREATE TABLE projects (
  project      text PRIMARY KEY,
  owner        text NOT NULL,
  store        text NOT NULL REFERENCES stores,
  policy       text NOT NULL,
  config       jsonb NOT NULL,
  last_mark_at timestamptz,                -- T of the last live mark: history is recorded after it
  applied_at   timestamptz NOT NULL DEFAULT catalog_clock()
);

CREATE TABLE project_keys (
  key_sha256 bytea PRIMARY KEY,
  project    text NOT NULL REFERENCES projects,
  name       text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT catalog_clock(),
  revoked_at timestamptz
);

CREATE TABLE policy_versions (
  project        text NOT NULL REFERENCES projects,
  policy         text NOT NULL,
  version        integer NOT NULL CHECK (version > 0),
  digest         text NOT NULL,
  document       jsonb NOT NULL,
  effective_from timestamptz NOT NULL,
  recorded_at    timestamptz NOT NULL DEFAULT catalog_clock(),
  recorded_by    text NOT NULL,
  PRIMARY KEY (project, policy, version),
  CHECK (effective_from >= recorded_at)
);

-- Stages and their history ---------------------------------------------------------------------------

CREATE TABLE stages (
  stage_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project          text NOT NULL REFERENCES projects,
  workload         text NOT NULL,
  stage            text NOT NULL,
  kind             text NOT NULL CHECK (kind IN ('checkpointed', 'restartable', 'ephemeral')),
  class            text NOT NULL,
  generation       bigint NOT NULL DEFAULT 0,   -- cache: the newest generation
  last_event       bigint NOT NULL DEFAULT 0,   -- cache: the newest event's number
  last_recorded_at timestamptz NOT NULL DEFAULT '-infinity',
  blocked_by       text,                        -- cache: the failing receipt that blocks restores
  UNIQUE (project, workload, stage),
  UNIQUE (stage_id, project)
);

CREATE TABLE events (
  stage_id    bigint NOT NULL,
  number      bigint NOT NULL CHECK (number > 0),
  project     text NOT NULL,
  kind        text NOT NULL,
  recorded_at timestamptz NOT NULL,
  actor       text NOT NULL,
  facts       jsonb NOT NULL,
  PRIMARY KEY (stage_id, number),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
CREATE INDEX events_by_time ON events (project, recorded_at);

CREATE TABLE outbox (                      -- delivery is tracked per row: ids commit out of order
  outbox_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project      text NOT NULL,
  stage_id     bigint NOT NULL,
  number       bigint NOT NULL,
  kind         text NOT NULL,
  delivered_at timestamptz,
  FOREIGN KEY (stage_id, number) REFERENCES events
);
CREATE INDEX outbox_undelivered ON outbox (outbox_id) WHERE delivered_at IS NULL;

CREATE TABLE preemptions (
  preemption_id   uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  project         text NOT NULL,
  stage_id        bigint NOT NULL,
  idempotency_key text NOT NULL,
  notice          jsonb NOT NULL,
  recorded_at     timestamptz NOT NULL,
  UNIQUE (stage_id, idempotency_key),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);

-- Generations ----------------------------------------------------------------------------------------

CREATE TABLE generations (
  stage_id                bigint NOT NULL,
  generation              bigint NOT NULL CHECK (generation > 0),
  project                 text NOT NULL,
  idempotency_key         text NOT NULL,
  holder                  text NOT NULL,
  fresh                   boolean NOT NULL,
  resumed_from_generation bigint,
  resumed_from_sequence   bigint,
  preemption_id           uuid REFERENCES preemptions,
  recorded_at             timestamptz NOT NULL,
  PRIMARY KEY (stage_id, generation),
  UNIQUE (stage_id, idempotency_key),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);

CREATE TABLE generation_tokens (           -- a repeated acquire gets a further token of the same generation
  token_sha256 bytea PRIMARY KEY,
  project      text NOT NULL,
  stage_id     bigint NOT NULL,
  generation   bigint NOT NULL,
  issued_at    timestamptz NOT NULL,
  FOREIGN KEY (stage_id, generation) REFERENCES generations
);

CREATE TABLE generation_leases (           -- renewals move expires_at and are not history
  stage_id   bigint NOT NULL,
  generation bigint NOT NULL,
  project    text NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (stage_id, generation),
  FOREIGN KEY (stage_id, generation) REFERENCES generations
);

CREATE TABLE generation_ends (
  stage_id    bigint NOT NULL,
  generation  bigint NOT NULL,
  project     text NOT NULL,
  how         text NOT NULL CHECK (how IN ('fenced', 'released', 'lapsed')),
  reason      text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (stage_id, generation, how),
  FOREIGN KEY (stage_id, generation) REFERENCES generations
);

-- Attempts -------------------------------------------------------------------------------------------

CREATE TABLE attempts (
  attempt_id       uuid PRIMARY KEY,
  project          text NOT NULL,
  stage_id         bigint NOT NULL,
  generation       bigint NOT NULL,
  sequence         bigint NOT NULL CHECK (sequence >= 0),
  step             bigint NOT NULL CHECK (step >= 0),
  kind             text NOT NULL CHECK (kind IN ('full', 'incremental')),
  idempotency_key  text NOT NULL,
  request_sha256   text NOT NULL,          -- the same key for another request is a conflict
  token_sha256     bytea NOT NULL UNIQUE,  -- the fencing token: good for uploading to this attempt alone
  store            text NOT NULL REFERENCES stores,
  prefix           text NOT NULL UNIQUE,
  declared_bytes   bigint NOT NULL CHECK (declared_bytes >= 0),
  recorded_at      timestamptz NOT NULL,
  state            text NOT NULL CHECK (state IN
                     ('open', 'sealed', 'committed', 'failed', 'aborting', 'closed')),  -- cache
  state_at         timestamptz NOT NULL,                                                -- cache
  lease_expires_at timestamptz NOT NULL,   -- the writer lease; renewals are not history
  grant_expires_at timestamptz NOT NULL,   -- the end of the last write grant; only moves forward
  manifest         bytea,                  -- the canonical manifest, from the moment of sealing
  finished_at      timestamptz,            -- committed, and marker and control keys are in the store
  UNIQUE (stage_id, generation, idempotency_key),
  FOREIGN KEY (stage_id, generation) REFERENCES generations,
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
CREATE UNIQUE INDEX attempts_one_live ON attempts (stage_id, generation, sequence)
  WHERE state IN ('open', 'sealed', 'committed');
CREATE INDEX attempts_by_state ON attempts (project, state);

CREATE TABLE attempt_transitions (
  attempt_id  uuid NOT NULL REFERENCES attempts,
  number      integer NOT NULL,
  project     text NOT NULL,
  from_state  text,
  to_state    text NOT NULL,
  reason      text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (attempt_id, number)
);

CREATE TABLE attempt_objects (
  attempt_id  uuid NOT NULL REFERENCES attempts,
  path        text NOT NULL,
  project     text NOT NULL,
  size_bytes  bigint NOT NULL CHECK (size_bytes >= 0),
  sha256      text,                        -- as declared at prepare, where already known
  part_bytes  bigint,
  upload_id   text,                        -- recorded before the first part may be sent
  verified_at timestamptz,                 -- a restarted verification goes on behind these
  version_id  text,
  problem     jsonb,                       -- why the object is not what the manifest says
  PRIMARY KEY (attempt_id, path)
);

-- Checkpoints ----------------------------------------------------------------------------------------

CREATE TABLE manifests (
  project     text NOT NULL,
  digest      text NOT NULL,
  body        bytea NOT NULL,              -- canonical JSON; its SHA-256 is the digest
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (project, digest)
);

CREATE TABLE checkpoints (
  checkpoint_id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project                 text NOT NULL,
  stage_id                bigint NOT NULL,
  generation              bigint NOT NULL,
  sequence                bigint NOT NULL,
  step                    bigint NOT NULL,
  attempt_id              uuid NOT NULL UNIQUE REFERENCES attempts,
  manifest                text NOT NULL,
  total_bytes             bigint NOT NULL,
  object_count            integer NOT NULL,
  metrics                 jsonb NOT NULL,
  contract                text,            -- the one that its manifest names for restore drills
  final                   boolean NOT NULL,
  resumed_from_generation bigint,
  resumed_from_sequence   bigint,
  recorded_at             timestamptz NOT NULL,
  UNIQUE (stage_id, generation, sequence),
  FOREIGN KEY (project, manifest) REFERENCES manifests,
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
CREATE INDEX checkpoints_by_manifest ON checkpoints (project, manifest);

CREATE TABLE dependencies (
  project    text NOT NULL,
  manifest   text NOT NULL,
  depends_on text NOT NULL,
  PRIMARY KEY (project, manifest, depends_on),
  FOREIGN KEY (project, manifest) REFERENCES manifests,
  FOREIGN KEY (project, depends_on) REFERENCES manifests (project, digest)
);
CREATE INDEX dependents ON dependencies (project, depends_on);

CREATE TABLE latest_pointers (             -- moves only by compare-and-set
  stage_id      bigint PRIMARY KEY,
  project       text NOT NULL,
  generation    bigint NOT NULL,
  sequence      bigint NOT NULL,
  checkpoint_id bigint NOT NULL REFERENCES checkpoints,
  moved_at      timestamptz NOT NULL,
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);

CREATE TABLE copies (
  copy_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project       text NOT NULL,
  stage_id      bigint NOT NULL,
  checkpoint_id bigint NOT NULL REFERENCES checkpoints,
  store         text NOT NULL REFERENCES stores,
  prefix        text NOT NULL,
  control_bytes bigint NOT NULL,           -- manifest and completion marker beside the objects
  recorded_at   timestamptz NOT NULL,
  state         text NOT NULL CHECK (state IN ('present', 'quarantined', 'deleting', 'deleted')), -- cache
  state_at      timestamptz NOT NULL,                                                             -- cache
  carried_out   integer NOT NULL DEFAULT 1, -- the transition that the store was last made to follow
  UNIQUE (checkpoint_id, store),
  UNIQUE (store, prefix),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
CREATE INDEX copies_by_state ON copies (project, state);

CREATE TABLE copy_objects (
  copy_id    bigint NOT NULL REFERENCES copies,
  path       text NOT NULL,
  project    text NOT NULL,
  size_bytes bigint NOT NULL,
  sha256     text NOT NULL,
  version_id text,
  PRIMARY KEY (copy_id, path)
);

CREATE TABLE copy_transitions (
  copy_id     bigint NOT NULL REFERENCES copies,
  number      integer NOT NULL,
  project     text NOT NULL,
  stage_id    bigint NOT NULL,
  from_state  text,
  to_state    text NOT NULL,
  actor       text NOT NULL,
  reason      text NOT NULL,
  mark_id     bigint,
  facts       jsonb NOT NULL,              -- the gate's verdict where one was needed
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (copy_id, number)
);
CREATE INDEX copy_transitions_by_stage ON copy_transitions (stage_id, recorded_at);

-- Validation -----------------------------------------------------------------------------------------

CREATE TABLE receipts (
  receipt           text PRIMARY KEY,      -- SHA-256 of the canonical body
  project           text NOT NULL,
  stage_id          bigint NOT NULL,
  number            bigint NOT NULL,       -- position in the stage's chain
  previous          text REFERENCES receipts,
  checkpoint_id     bigint NOT NULL REFERENCES checkpoints,
  copy_id           bigint NOT NULL REFERENCES copies,
  level             text NOT NULL CHECK (level IN ('checksum', 'format', 'restore')),
  verdict           text NOT NULL CHECK (verdict IN ('pass', 'fail', 'inconclusive')),
  validator         text NOT NULL,
  validator_version text NOT NULL,
  started_at        timestamptz NOT NULL,
  finished_at       timestamptz NOT NULL,
  bytes_read        bigint NOT NULL,
  reason            text NOT NULL,
  body              jsonb NOT NULL,
  recorded_at       timestamptz NOT NULL,
  UNIQUE (stage_id, number),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
CREATE INDEX receipts_by_copy ON receipts (copy_id, recorded_at);

CREATE TABLE restore_blocks (              -- the last row says whether the stage may be restored
  stage_id    bigint NOT NULL,
  number      bigint NOT NULL,
  project     text NOT NULL,
  blocked     boolean NOT NULL,
  receipt     text REFERENCES receipts,
  established bigint REFERENCES checkpoints,
  actor       text NOT NULL,
  because     text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (stage_id, number),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);

-- What keeps a checkpoint ------------------------------------------------------------------------------

CREATE TABLE holds (
  hold_id     uuid PRIMARY KEY,
  project     text NOT NULL REFERENCES projects,
  kind        text NOT NULL CHECK (kind IN ('incident', 'legal', 'research', 'milestone')),
  owner       text NOT NULL,
  reason      text NOT NULL,
  selector    jsonb,                       -- also takes what is committed later, while it stands
  expires_at  timestamptz,
  placed_by   text NOT NULL,
  recorded_at timestamptz NOT NULL,
  CHECK (kind <> 'legal' OR expires_at IS NULL)
);
CREATE TABLE hold_checkpoints (
  hold_id       uuid NOT NULL REFERENCES holds,
  checkpoint_id bigint NOT NULL REFERENCES checkpoints,
  project       text NOT NULL,
  stage_id      bigint NOT NULL,
  recorded_at   timestamptz NOT NULL,
  PRIMARY KEY (hold_id, checkpoint_id)
);
CREATE INDEX hold_checkpoints_by_stage ON hold_checkpoints (stage_id);
CREATE TABLE hold_releases (
  hold_id     uuid PRIMARY KEY REFERENCES holds,
  project     text NOT NULL,
  released_by text NOT NULL,
  because     text NOT NULL,
  recorded_at timestamptz NOT NULL
);

CREATE TABLE reader_leases (               -- renewals move expires_at and are not history
  lease_id      uuid PRIMARY KEY,
  project       text NOT NULL,
  stage_id      bigint NOT NULL,
  checkpoint_id bigint NOT NULL REFERENCES checkpoints,
  copy_id       bigint NOT NULL REFERENCES copies,
  reader        text NOT NULL,
  token_sha256  bytea NOT NULL UNIQUE,
  expires_at    timestamptz NOT NULL,
  recorded_at   timestamptz NOT NULL,
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
CREATE INDEX reader_leases_by_stage ON reader_leases (stage_id);
CREATE TABLE reader_ends (
  lease_id    uuid PRIMARY KEY REFERENCES reader_leases,
  project     text NOT NULL,
  how         text NOT NULL CHECK (how IN ('released', 'lapsed')),
  recorded_at timestamptz NOT NULL
);

-- End of life ------------------------------------------------------------------------------------------

CREATE TABLE retirements (                 -- of a project, of a workload, or of one stage
  retirement_id uuid PRIMARY KEY,
  project       text NOT NULL REFERENCES projects,
  workload      text,
  stage         text,
  reason        text NOT NULL,
  grace_seconds double precision NOT NULL CHECK (grace_seconds > 0), -- from the approval, or the asking
  approve       boolean NOT NULL,          -- nothing happens before another operator approved it
  asked_by      text NOT NULL,
  recorded_at   timestamptz NOT NULL,
  CHECK (workload IS NOT NULL OR stage IS NULL)
);
CREATE INDEX retirements_by_project ON retirements (project);
CREATE TABLE retirement_approvals (
  retirement_id uuid PRIMARY KEY REFERENCES retirements,
  project       text NOT NULL,
  approved_by   text NOT NULL,
  recorded_at   timestamptz NOT NULL
);
CREATE TABLE retirement_undos (
  retirement_id uuid PRIMARY KEY REFERENCES retirements,
  project       text NOT NULL,
  undone_by     text NOT NULL,
  because       text NOT NULL,
  recorded_at   timestamptz NOT NULL
);

-- Retention ------------------------------------------------------------------------------------------

CREATE TABLE marks (
  mark_id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project           text NOT NULL REFERENCES projects,
  kind              text NOT NULL CHECK (kind IN ('live', 'replay', 'simulated')),
  at                timestamptz NOT NULL,
  policy            text NOT NULL,
  policy_version    integer NOT NULL,
  policy_digest     text NOT NULL,
  code_version      text NOT NULL,
  time_zone_version text NOT NULL,
  digest            text NOT NULL,         -- of the whole decision
  counts            jsonb NOT NULL,
  recorded_at       timestamptz NOT NULL,
  UNIQUE (project, kind, policy, policy_version, at)
);
CREATE TABLE mark_candidates (
  mark_id       bigint NOT NULL REFERENCES marks,
  copy_id       bigint NOT NULL REFERENCES copies,
  project       text NOT NULL,
  stage_id      bigint NOT NULL,
  checkpoint_id bigint NOT NULL,
  leaves        text NOT NULL,             -- the role that it leaves, or 'none'
  reasons       jsonb NOT NULL,
  bytes         bigint NOT NULL,
  PRIMARY KEY (mark_id, copy_id)
);
CREATE TABLE mark_changes (                -- against the project's last mark of the same kind
  mark_id       bigint NOT NULL REFERENCES marks,
  checkpoint_id bigint NOT NULL,
  project       text NOT NULL,
  change        text NOT NULL CHECK (change IN ('entered', 'left', 'new')),
  PRIMARY KEY (mark_id, checkpoint_id)
);

CREATE TABLE sweep_requests (              -- a plan that a sweep does not follow without approval
  request_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project       text NOT NULL REFERENCES projects,
  mark_id       bigint NOT NULL REFERENCES marks,
  policy_digest text NOT NULL,
  plan_digest   text NOT NULL,
  stop          text NOT NULL,             -- why it asks
  to_quarantine bigint[] NOT NULL,
  to_delete     bigint[] NOT NULL,
  recorded_at   timestamptz NOT NULL
);
CREATE INDEX sweep_requests_by_mark ON sweep_requests (project, mark_id);
CREATE TABLE sweep_approvals (
  request_id  bigint PRIMARY KEY REFERENCES sweep_requests,
  project     text NOT NULL,
  approved_by text NOT NULL,
  because     text NOT NULL,
  recorded_at timestamptz NOT NULL
);

-- Deletion ---------------------------------------------------------------------------------------------

CREATE TABLE tombstones (                  -- the intent; a copy's, or an abandoned attempt's
  tombstone_id   uuid PRIMARY KEY,
  project        text NOT NULL,
  stage_id       bigint NOT NULL,
  number         bigint NOT NULL,          -- position in the stage's chain
  previous       text,                     -- digest of the one before it
  digest         text NOT NULL,
  checkpoint_id  bigint REFERENCES checkpoints,
  copy_id        bigint UNIQUE REFERENCES copies,
  attempt_id     uuid UNIQUE REFERENCES attempts,
  store          text NOT NULL REFERENCES stores,
  prefix         text NOT NULL,
  mark_id        bigint REFERENCES marks,
  policy_digest  text NOT NULL,
  facts          jsonb NOT NULL,           -- each fact of the gate with its evidence
  bytes          bigint NOT NULL,
  actor          text NOT NULL,
  recorded_at    timestamptz NOT NULL,
  UNIQUE (stage_id, number),
  CHECK ((copy_id IS NULL) <> (attempt_id IS NULL)),
  FOREIGN KEY (stage_id, project) REFERENCES stages (stage_id, project)
);
CREATE TABLE tombstone_keys (              -- what became of each key; a refused one gets further rows
  tombstone_id uuid NOT NULL REFERENCES tombstones,
  number       bigint NOT NULL,
  project      text NOT NULL,
  key          text NOT NULL,
  version_id   text,
  size_bytes   bigint NOT NULL,
  outcome      text NOT NULL CHECK (outcome IN ('gone', 'absent', 'refused')),
  reason       text,
  recorded_at  timestamptz NOT NULL,
  PRIMARY KEY (tombstone_id, number)
);
CREATE TABLE tombstone_proofs (            -- a later complete listing found nothing: closes the tombstone
  tombstone_id uuid PRIMARY KEY REFERENCES tombstones,
  project      text NOT NULL,
  evidence     jsonb NOT NULL,
  recorded_at  timestamptz NOT NULL
);

-- Capacity ---------------------------------------------------------------------------------------------

CREATE TABLE capacity_counters (
  project         text NOT NULL REFERENCES projects,
  store           text NOT NULL REFERENCES stores,
  committed_bytes bigint NOT NULL DEFAULT 0 CHECK (committed_bytes >= 0), -- copies not yet proven gone
  in_flight_bytes bigint NOT NULL DEFAULT 0 CHECK (in_flight_bytes >= 0), -- attempts that own room
  peak_bytes      bigint NOT NULL DEFAULT 0,                              -- the largest checkpoint
  backend_bytes   bigint,                                                 -- the last backend total
  backend_total   bigint,
  backend_at      timestamptz,
  PRIMARY KEY (project, store)
);

-- Reconciliation ---------------------------------------------------------------------------------------

CREATE TABLE reports (
  report_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  store        text NOT NULL REFERENCES stores,
  project      text NOT NULL,
  window_start timestamptz NOT NULL,
  window_end   timestamptz NOT NULL,
  document     jsonb NOT NULL,             -- the equation, the differences, the checks, the counts
  passed       boolean NOT NULL,
  recorded_at  timestamptz NOT NULL
);
CREATE INDEX reports_by_project ON reports (project, recorded_at);

CREATE TABLE findings (
  finding_id  uuid PRIMARY KEY,
  project     text NOT NULL,
  store       text NOT NULL REFERENCES stores,
  cause       text NOT NULL,
  key_range   text NOT NULL,
  owner       text NOT NULL,
  deadline    timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL
);
CREATE TABLE finding_events (
  finding_id  uuid NOT NULL REFERENCES findings,
  number      integer NOT NULL,
  project     text NOT NULL,
  kind        text NOT NULL CHECK (kind IN ('opened', 'seen', 'assigned', 'explained', 'closed')),
  bytes       bigint NOT NULL,
  objects     bigint NOT NULL,
  actor       text NOT NULL,
  facts       jsonb NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (finding_id, number)
);

-- Append-only ------------------------------------------------------------------------------------------

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'lastgood.% is append-only: % refused', TG_TABLE_NAME, TG_OP
    USING ERRCODE = 'integrity_constraint_violation';
END $$;

DO $$
DECLARE append_only text;
BEGIN
  FOREACH append_only IN ARRAY ARRAY[
    'rebuilds', 'rebuild_ends', 'clock_jumps', 'clock_acceptances', 'policy_versions', 'events',
    'preemptions', 'generations',
    'generation_tokens', 'generation_ends', 'attempt_transitions', 'manifests', 'checkpoints',
    'dependencies', 'copy_objects', 'copy_transitions', 'receipts', 'restore_blocks', 'holds',
    'hold_checkpoints', 'hold_releases', 'reader_ends',
    'retirements', 'retirement_approvals', 'retirement_undos',
    'marks', 'mark_candidates', 'mark_changes', 'sweep_requests', 'sweep_approvals', 'tombstones',
    'tombstone_keys', 'tombstone_proofs', 'reports', 'findings', 'finding_events']
  LOOP
    EXECUTE format('CREATE TRIGGER append_only_rows BEFORE UPDATE OR DELETE ON %I
                    FOR EACH ROW EXECUTE FUNCTION refuse_change()', append_only);
    EXECUTE format('CREATE TRIGGER append_only_table BEFORE TRUNCATE ON %I
                    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()', append_only);
  END LOOP;
END $$;
