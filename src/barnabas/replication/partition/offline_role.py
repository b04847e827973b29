"""The role of a replica whose partition has no leader (Kafka's OfflinePartition)."""

from __future__ import annotations

NO_LEADER = -1
NO_LEADER_EPOCH = -1


class OfflineRole:
    """Nothing is appended. Also the role before the first metadata."""

    __slots__ = ("leader_epoch",)

    # As in the other roles.
    leader_id = NO_LEADER

    def __init__(self, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        # The epoch of the change that took the leader away. Never changes. -1 before the first
        # metadata.
        self.leader_epoch = leader_epoch
