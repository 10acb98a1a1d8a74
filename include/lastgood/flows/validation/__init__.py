"""Validation: each level of the ladder, its receipts, and what follows a failure."""
