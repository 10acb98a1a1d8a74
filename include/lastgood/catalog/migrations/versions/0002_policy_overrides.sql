-- Rules of a policy for some workloads only.

SET LOCAL search_path = lastgood;

-- Later tables that are append-only become so by this.
CREATE FUNCTION make_append_only(named regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE TRIGGER append_only_rows BEFORE UPDATE OR DELETE ON %s
                  FOR EACH ROW EXECUTE FUNCTION lastgood.refuse_change()', named);
  EXECUTE format('CREATE TRIGGER append_only_table BEFORE TRUNCATE ON %s
                  FOR EACH STATEMENT EXECUTE FUNCTION lastgood.refuse_change()', named);
END $$;
