"""One row out for each row in: running aggregates, reduce and fold, per key."""
