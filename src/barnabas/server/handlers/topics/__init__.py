"""Handlers of APIs on topics and partitions."""
