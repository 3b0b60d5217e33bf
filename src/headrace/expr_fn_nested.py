"""Functions: nested."""
