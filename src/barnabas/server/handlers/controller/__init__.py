"""Handlers of APIs that only controllers serve."""
