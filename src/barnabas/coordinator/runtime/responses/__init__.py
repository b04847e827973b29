"""Responses that wait for commits or for other requests, and the errors of failed writes."""
