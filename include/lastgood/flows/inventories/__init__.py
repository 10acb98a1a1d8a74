"""Inventories of stores: taken, kept, joined with the catalog, and explained byte by byte."""
