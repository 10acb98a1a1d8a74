"""Rebuilding a lost or outdated catalog from what its stores show."""
