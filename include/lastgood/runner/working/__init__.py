"""How work goes on: side by side, again and again, until there is a reason to stop."""
