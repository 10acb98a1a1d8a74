"""A checkpoint on its way out: files, in parts, hashed as they go."""
