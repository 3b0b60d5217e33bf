"""Dataflows for Bytewax, each a module that its own command runs in an environment of its own.

So they import neither Headrace nor PySpark. Where they read and write stands in BENCH_FLOW.
"""
