"""Members of consumer groups, and their steps from the assigned to the target partitions."""
