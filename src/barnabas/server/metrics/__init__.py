"""Metrics of a node, and the HTTP listener that exposes them."""
