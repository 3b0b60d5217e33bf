"""What windows are: assigners, triggers, evictors and functions, as values."""
