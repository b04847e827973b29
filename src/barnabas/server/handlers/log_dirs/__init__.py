"""Handlers of APIs on the data directories of a broker."""
