"""The records that an audit re-verifies: certificates, daily digests, rows."""
