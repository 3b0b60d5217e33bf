"""Whole jobs whose files are damaged, and whose drivers are stopped and let go later."""
