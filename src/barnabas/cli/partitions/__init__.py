"""`barnabas partitions`: where partitions are, how far their replicas, and moving them."""
