"""Tumbling and sliding windows that fire once, from panes they share."""
