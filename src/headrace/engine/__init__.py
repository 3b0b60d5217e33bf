"""Headrace on Spark: the only room that imports pyspark.

It binds the functions in `runtime/` to one Spark query per job and runs it.
"""
