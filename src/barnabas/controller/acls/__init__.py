"""Access control lists: creating and deleting entries."""
