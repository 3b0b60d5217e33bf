"""Headrace against hand-written PySpark: the same work, on the same files, in the same run.

A speed here is a ratio, and counts only when both contenders gave the same result. See
`docs/guide/benchmarks.md` for the rules. Nothing in `src/` knows about this package.
"""
