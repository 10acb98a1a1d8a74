-- Promotions of policies, and what they must have been shown before.

SET LOCAL search_path = lastgood;

-- NULL: the version was only recorded; it is in force by a promotion, or never.
ALTER TABLE policy_versions ALTER COLUMN effective_from DROP NOT NULL;

CREATE TABLE policy_differences (          -- what a candidate would have kept otherwise, as it was shown
  difference_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project           text NOT NULL REFERENCES projects,
  current           text NOT NULL,         -- name@vN, or a file's name
  current_digest    text NOT NULL,
  candidate         text NOT NULL,
  candidate_digest  text NOT NULL,
  from_at           timestamptz NOT NULL,
  to_at             timestamptz NOT NULL,
  code_version      text NOT NULL,
  time_zone_version text NOT NULL,
  document          jsonb NOT NULL,
  recorded_by       text NOT NULL,
  recorded_at       timestamptz NOT NULL
);
CREATE INDEX policy_differences_by_digests
  ON policy_differences (project, current_digest, candidate_digest, recorded_at);

CREATE TABLE policy_promotions (           -- a rollback is one to an older version
  promotion_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  project         text NOT NULL,
  kind            text NOT NULL CHECK (kind IN ('promote', 'rollback')),
  policy          text NOT NULL,
  version         integer NOT NULL,
  replaces_policy text NOT NULL,
  replaces_version integer NOT NULL,
  difference_id   bigint NOT NULL REFERENCES policy_differences,
  effective_from  timestamptz NOT NULL,    -- never earlier than its recording, or its approval
  cooling_seconds double precision NOT NULL CHECK (cooling_seconds >= 0),
  approve         boolean NOT NULL,        -- nothing happens before another operator approved it
  because         text NOT NULL,
  asked_by        text NOT NULL,
  recorded_at     timestamptz NOT NULL,
  CHECK (effective_from >= recorded_at),
  FOREIGN KEY (project, policy, version) REFERENCES policy_versions,
  FOREIGN KEY (project, replaces_policy, replaces_version) REFERENCES policy_versions
);
CREATE INDEX policy_promotions_by_project ON policy_promotions (project);
CREATE TABLE promotion_approvals (
  promotion_id bigint PRIMARY KEY REFERENCES policy_promotions,
  project      text NOT NULL,
  approved_by  text NOT NULL,
  because      text NOT NULL,
  recorded_at  timestamptz NOT NULL
);
CREATE TABLE promotion_marks (             -- the first live mark under each promotion
  promotion_id bigint PRIMARY KEY REFERENCES policy_promotions,
  project      text NOT NULL,
  mark_id      bigint NOT NULL REFERENCES marks,
  recorded_at  timestamptz NOT NULL
);

SELECT make_append_only('policy_differences'), make_append_only('policy_promotions'),
       make_append_only('promotion_approvals'), make_append_only('promotion_marks');
