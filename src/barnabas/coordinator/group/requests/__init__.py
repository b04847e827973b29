"""The requests of groups: checks that need no group, and the way to the shard of the group."""
