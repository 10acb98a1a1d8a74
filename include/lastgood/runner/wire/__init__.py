"""Requests to the coordinator, and object bytes to and from a store."""
