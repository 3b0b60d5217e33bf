"""Functions: math."""
