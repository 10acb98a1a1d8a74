"""Auditing: whether the record of deletions is whole, and justifies each of them."""
