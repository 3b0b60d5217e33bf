"""What each task of an epoch does, as plain functions: no Spark in this room.

`engine/` runs these functions on Spark, `testing/` runs the same ones in process.
"""
