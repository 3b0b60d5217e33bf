"""What the examples read: a generator of records for each, and the report of a run."""
