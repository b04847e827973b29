"""Classic groups: members join, a leader assigns partitions, and the coordinator stores them."""
