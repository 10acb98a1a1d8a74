"""Incomplete uploads, and the rules of buckets against them."""
