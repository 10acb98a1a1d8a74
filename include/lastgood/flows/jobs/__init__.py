"""What training jobs ask for: to become the writer of a stage, to save, and to read."""
