"""Repeated attempts: backoff, timers and calls that are retried."""
