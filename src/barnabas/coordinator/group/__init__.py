"""The group coordinator: committed offsets (and groups) in `__consumer_offsets`."""
