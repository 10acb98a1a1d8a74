"""What marks decided, and the facts that the gate judges by."""
