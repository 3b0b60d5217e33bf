"""Headrace on Spark: the only room that imports pyspark.

It binds the functions in `task/` and `driver/` to one Spark query per job and runs it.
"""
