"""Joins: streams and tables that meet by key, for all keys of a task at once."""
