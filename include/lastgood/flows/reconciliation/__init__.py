"""The daily reconciliation: its report, and its findings until they are closed."""
