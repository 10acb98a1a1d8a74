"""What is configured: projects, their stores, policies and keys."""
