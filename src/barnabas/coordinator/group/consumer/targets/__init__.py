"""The target assignment of a consumer group: at once, or in slices for large groups."""
