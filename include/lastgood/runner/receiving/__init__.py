"""A checkpoint on its way in: proven before it is put in place."""
