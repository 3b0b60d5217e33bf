"""Functions: text."""
