"""Functions: time."""
