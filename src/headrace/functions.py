"""Scalar functions as Python calls."""
