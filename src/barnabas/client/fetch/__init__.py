"""Fetching: requests, sessions, buffered record sets, and offset look-ups."""
