"""Segments of a log: files of batches, their indexes, and searches in them."""
