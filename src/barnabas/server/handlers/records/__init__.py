"""Handlers of APIs on the records of partitions, and on producers."""
