"""Replay of a state partition's log after its election, and how long that took."""
