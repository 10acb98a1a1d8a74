-- Policies with rules for some workloads only, and marks of a million checkpoints. The rules lie in the
-- policy's document: its one digest goes through marks, approvals and tombstones.

SET LOCAL search_path = lastgood;

-- Later tables that are append-only become so by this.
CREATE FUNCTION make_append_only(named regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('CREATE TRIGGER append_only_rows BEFORE UPDATE OR DELETE ON %s
                  FOR EACH ROW EXECUTE FUNCTION lastgood.refuse_change()', named);
  EXECUTE format('CREATE TRIGGER append_only_table BEFORE TRUNCATE ON %s
                  FOR EACH STATEMENT EXECUTE FUNCTION lastgood.refuse_change()', named);
END $$;

-- A mark writes its rows a million at a time, in one transaction with the mark itself and from copies
-- that it has just read, and no row of these tables is ever changed or deleted. Looking each one up
-- again would take longer than all the rest of the mark.
ALTER TABLE mark_candidates
  DROP CONSTRAINT mark_candidates_mark_id_fkey,
  DROP CONSTRAINT mark_candidates_copy_id_fkey;
ALTER TABLE mark_changes DROP CONSTRAINT mark_changes_mark_id_fkey;
