"""Cleaning up what incomplete and failed attempts left in the stores."""
