"""The routes that operators see: their API, each with its guard."""
