"""Access control lists in the metadata image."""
