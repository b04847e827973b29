"""Topologies of streams groups: their check, and the topics that they need."""
