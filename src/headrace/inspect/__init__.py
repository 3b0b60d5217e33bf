"""A job as people look at it: state, progress, and why there is no output. Changes nothing."""
