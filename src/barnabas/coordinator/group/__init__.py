"""The group coordinator: groups and committed offsets in `__consumer_offsets`."""
