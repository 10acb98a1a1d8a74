"""What a rebuild reads back, and how far it is."""
