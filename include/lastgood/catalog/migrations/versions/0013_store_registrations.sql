-- Stores that are registered no more, and those that are again.

SET LOCAL search_path = lastgood;

-- A store's row stays for good, for history names it. The column is a cache of the last event.
ALTER TABLE stores ADD COLUMN unregistered_at timestamptz;

CREATE TABLE store_registrations (         -- nothing of a store that was never unregistered
  store       text NOT NULL REFERENCES stores,
  number      integer NOT NULL CHECK (number > 0),
  kind        text NOT NULL CHECK (kind IN ('unregistered', 'registered')),
  document    jsonb NOT NULL,              -- the store's configuration then
  because     text NOT NULL,
  actor       text NOT NULL,
  recorded_at timestamptz NOT NULL,
  PRIMARY KEY (store, number)
);
SELECT make_append_only('store_registrations');

-- What would make a store needed again is refused: whoever unregisters it looked, and holds its row
-- against every new reference until that is recorded.
CREATE FUNCTION refuse_unregistered() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM lastgood.stores
    WHERE store = NEW.store AND unregistered_at IS NULL FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'store % is not registered', NEW.store
      USING ERRCODE = 'foreign_key_violation';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER registered BEFORE INSERT OR UPDATE OF store ON projects
  FOR EACH ROW EXECUTE FUNCTION refuse_unregistered();
CREATE TRIGGER registered BEFORE INSERT ON attempts
  FOR EACH ROW EXECUTE FUNCTION refuse_unregistered();
CREATE TRIGGER registered BEFORE INSERT ON incomplete_uploads
  FOR EACH ROW EXECUTE FUNCTION refuse_unregistered();
CREATE TRIGGER registered BEFORE INSERT ON findings
  FOR EACH ROW EXECUTE FUNCTION refuse_unregistered();
CREATE TRIGGER registered BEFORE INSERT ON inventory_events
  FOR EACH ROW WHEN (NEW.kind = 'started') EXECUTE FUNCTION refuse_unregistered();
