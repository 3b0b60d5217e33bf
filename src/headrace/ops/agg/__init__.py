"""Aggregates: partials that merge, over groups, panes and runs of rows."""
