"""What operators keep in git, and bringing the catalog to it."""
