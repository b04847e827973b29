"""A broker's replicas: leadership, in-sync replicas, and operations that wait for replication."""
