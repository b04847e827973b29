"""Topics and new partitions on the controller: validation, placement, records."""
