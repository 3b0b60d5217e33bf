"""Loops: rows go back to where they came from, within a batch or with the next."""
