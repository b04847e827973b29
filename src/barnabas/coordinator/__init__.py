"""Coordinators: replicated state machines over one log partition each (KIP-848)."""
