"""The group coordinator's counters: plain numbers, read when metrics are published."""

from __future__ import annotations


class GroupMetrics:
    """Counters of all shards together, since the start."""

    __slots__ = (
        "completed_rebalances",
        "consumer_rebalances",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
        "share_rebalances",
        "streams_rebalances",
    )

    def __init__(self) -> None:
        # Rebalances whose assignments all members received.
        self.completed_rebalances = 0
        # Increases of the epochs of consumer groups.
        self.consumer_rebalances = 0
        # Increases of the epochs of share groups by heartbeats.
        self.share_rebalances = 0
        # Increases of the epochs of streams groups by heartbeats.
        self.streams_rebalances = 0
        # Number of offsets, not of requests.
        self.offset_commits = 0
        # Deletions by administrators, or with a group or topic.
        self.offset_deletions = 0
        self.offset_expirations = 0
