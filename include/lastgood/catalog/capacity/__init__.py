"""Room by project and store: counters, states, and proofs of what collection reaches."""
