"""Patterns: sequences of rows of one key that mean something together."""
