"""Detectors of change and models that learn, as steps of a stream."""
