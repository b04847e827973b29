"""Simulated twins of the doors in `runtime`, and whole clusters in virtual time."""
