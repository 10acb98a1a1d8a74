"""What sweeps were allowed and did: approvals, what a day took, tombstones."""
