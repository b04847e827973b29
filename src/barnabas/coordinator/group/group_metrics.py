"""What the group coordinator counts: plain numbers, read by whoever publishes metrics."""

from __future__ import annotations


class GroupMetrics:
    """Counts since the start, of all shards together."""

    __slots__ = ("completed_rebalances", "offset_commits", "offset_deletions", "offset_expirations")

    def __init__(self) -> None:
        # Assignments that all members were given.
        self.completed_rebalances = 0
        # Offsets, not requests.
        self.offset_commits = 0
        # By administrators, or with their group or topic.
        self.offset_deletions = 0
        self.offset_expirations = 0
