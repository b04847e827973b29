"""Conversion between classic and consumer groups."""
