"""The process: a node with its broker and controller roles, from start to stop."""
