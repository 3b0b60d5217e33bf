"""Process functions: what users write to see one key's rows, and their state."""
