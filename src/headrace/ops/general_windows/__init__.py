"""Windows of time with any assigner, trigger, lateness and function."""
