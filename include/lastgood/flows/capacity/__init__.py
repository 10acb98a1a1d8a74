"""Room: who gets some, and where a project stands against its watermarks."""
