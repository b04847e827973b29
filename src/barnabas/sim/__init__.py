"""Simulated implementations of the interfaces in `runtime`, and whole clusters in virtual time."""
