"""The configuration of a share group that applies to an operation (KIP-932)."""

from __future__ import annotations

import msgspec


class ShareLimits(msgspec.Struct, frozen=True):
    """The configuration of a group that applies to an operation."""

    # How often a record is delivered: group.share.delivery.count.limit.
    delivery_count_limit: int
    # Records in flight: group.share.partition.max.record.locks.
    record_locks_max: int
    # Time of an acquisition lock: group.share.record.lock.duration.ms.
    lock_duration_ms: int
    # Whether members may renew locks: share.renew.acknowledge.enable (KIP-1222).
    can_renew: bool = True
    # Whether the group has a dead-letter topic and share.version is 2 (KIP-1191).
    has_dead_letters: bool = False
