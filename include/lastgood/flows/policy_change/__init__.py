"""Changing a policy: the difference that it would make, and its promotion."""
