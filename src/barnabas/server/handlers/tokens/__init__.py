"""Handlers of requests for delegation tokens."""
