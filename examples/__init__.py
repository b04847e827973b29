"""Pipelines over real data, to run and to copy from."""
