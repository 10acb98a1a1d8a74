-- Findings followed across days, alerts about them, and what each quality check said of each report.

SET LOCAL search_path = lastgood;

-- What one check of a report found; `number` is its place in the order in which checks are run.
CREATE TABLE quality_results (
  report_id   bigint NOT NULL REFERENCES reports,
  number      integer NOT NULL CHECK (number > 0),
  project     text NOT NULL,
  store       text NOT NULL REFERENCES stores,
  suite       text NOT NULL,
  name        text NOT NULL,
  severity    text NOT NULL CHECK (severity IN ('critical', 'warning')),
  owner       text NOT NULL,
  passed      boolean NOT NULL,
  observed    text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (report_id, number)
);
CREATE INDEX ON quality_results (project, store, recorded_at);
SELECT make_append_only('quality_results');

-- That somebody was told of an overdue finding: by which notifier, in which run. A run tells once.
CREATE TABLE finding_alerts (
  finding_id  uuid NOT NULL REFERENCES findings,
  run         text NOT NULL,
  notifier    text NOT NULL,
  project     text NOT NULL,
  owner       text NOT NULL,
  deadline    timestamptz NOT NULL,
  bytes       bigint NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (finding_id, run, notifier)
);
CREATE INDEX ON finding_alerts (project, recorded_at);
SELECT make_append_only('finding_alerts');
