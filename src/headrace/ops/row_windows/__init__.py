"""Windows that are bounded by rows, not by time."""
