"""Consumer groups (KIP-848): the coordinator assigns the partitions itself."""
