"""Chains of changed programs, crashes between them, against a model; see `__main__.py`."""
