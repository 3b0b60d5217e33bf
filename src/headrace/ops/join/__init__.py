"""Joins of streams and tables by key, for all keys of a task at once."""
