"""Admin calls on nodes, features and the quorum."""
