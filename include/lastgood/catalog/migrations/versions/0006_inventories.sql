-- Kept inventories of stores, and what operators know of a backend's own accounting.

SET LOCAL search_path = lastgood;

-- What happened to an inventory: started, completed or unusable, deleted. Its files lie in the store
-- `place`, which may be the listed one. What began and was not deleted may have bytes.
CREATE TABLE inventory_events (
  store       text NOT NULL REFERENCES stores,
  inventory   text NOT NULL,
  number      integer NOT NULL CHECK (number > 0),
  place       text NOT NULL REFERENCES stores,
  kind        text NOT NULL CHECK (kind IN ('started', 'completed', 'unusable', 'deleted')),
  facts       jsonb NOT NULL,
  actor       text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (store, inventory, number)
);
CREATE INDEX ON inventory_events (place);
SELECT make_append_only('inventory_events');

-- A number from an operator: what a backend accounts (`total`), or how much of that is one cause.
CREATE TABLE accounting_numbers (
  store       text NOT NULL REFERENCES stores,
  number      integer NOT NULL CHECK (number > 0),
  cause       text NOT NULL,
  bytes       bigint NOT NULL CHECK (bytes >= 0),
  replicas    integer NOT NULL CHECK (replicas BETWEEN 1 AND 100),
  as_of       timestamptz NOT NULL,
  because     text NOT NULL,
  actor       text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (store, number)
);
SELECT make_append_only('accounting_numbers');
