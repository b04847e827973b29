"""The leader of a registry: its election, and its writes that a deposed leader cannot make."""
