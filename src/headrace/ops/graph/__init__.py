"""Graphs over streams of edges: components, degrees, triangles, spanners, sparsifiers."""
