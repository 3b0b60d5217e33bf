"""What the examples read: a generator of records for each, and what `python -m` tells of a run."""
