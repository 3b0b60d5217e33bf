"""The long fault suites, under their own verb: make chaos."""
