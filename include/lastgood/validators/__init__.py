"""What looks into a checkpoint: programs run in isolation, and the formats that they read."""
