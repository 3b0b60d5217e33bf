"""What each task of an epoch does, as plain functions: no Spark in this room.

`engine/` runs these functions on Spark; `driver/local_runner.py` runs the same ones in this
process.
"""
