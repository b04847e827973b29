"""`barnabas partitions`: show partitions and their replicas, move replicas, elect leaders."""
