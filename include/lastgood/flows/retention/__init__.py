"""Retention: what a policy keeps, the gate before anything leaves, and the reasons for both."""
