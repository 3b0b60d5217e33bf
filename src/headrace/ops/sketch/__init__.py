"""Approximate aggregates: synopses of bounded size, and how far off they are."""
