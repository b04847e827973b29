"""Coordinators: state machines over a partition each, whose log is their only memory (KIP-848)."""
