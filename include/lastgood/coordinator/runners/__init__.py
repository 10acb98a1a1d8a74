"""The routes that training jobs use, each with its token and fence."""
