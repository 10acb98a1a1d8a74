"""Drills: a proof from end to end, on the real store, that what is kept can be restored."""
