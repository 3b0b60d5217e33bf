"""Calls to the outside from inside a task: many at once, with limits, and what they need."""
