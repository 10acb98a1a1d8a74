"""Inventories, reports, their quality checks, and findings."""
