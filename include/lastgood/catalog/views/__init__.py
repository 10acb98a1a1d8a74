"""What operators and monitoring look at, read across the other tables."""
