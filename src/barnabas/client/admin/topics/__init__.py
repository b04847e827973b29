"""Admin calls on topics, partitions and replicas."""
