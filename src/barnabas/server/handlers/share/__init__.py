"""Handlers of the requests of share consumers."""
