"""The examples give what a plain computation gives: here, cut into batches, and on Spark."""
