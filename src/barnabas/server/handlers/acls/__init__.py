"""Requests for access control entries."""
