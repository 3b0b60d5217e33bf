"""Bolts of a topology: the tasks of each, and which rows go to which."""
