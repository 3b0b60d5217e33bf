"""Doors onto the plan: what users call to write a program. Nothing here runs anything."""
