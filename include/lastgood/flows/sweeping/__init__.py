"""Sweeping: the plan, the room that it can give back, and deletion that is verified."""
