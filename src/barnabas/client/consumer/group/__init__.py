"""The consumer as a member of its group, and its commits."""
