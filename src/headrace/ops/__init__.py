"""Meaning as pure functions over Arrow: no Spark, no files, no wall clock."""
