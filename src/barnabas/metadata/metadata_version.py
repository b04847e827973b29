"""Levels of features: the record formats of `metadata.version`, and the finalized levels.

KIP-584, KIP-778.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"
# Version 1 adds tagged fields to records of transactions; 2 raises epochs at their end (KIP-890).
TRANSACTION_VERSION = "transaction.version"
TRANSACTION_VERSION_MAX = 2
# Version 1 enables consumer groups (KIP-848).
GROUP_VERSION = "group.version"
# Version 1 enables share groups (KIP-932).
SHARE_VERSION = "share.version"
# Version 1 enables streams groups (KIP-1071).
STREAMS_VERSION = "streams.version"

# 3.3-IV3, the oldest level that Kafka 4 supports.
METADATA_VERSION_MIN = 7
# 4.4-IV2, the level with which Kafka 4.4 formats a new cluster.
METADATA_VERSION_MAX = 33

_MIGRATION = 8  # 3.4-IV0
_NO_EPOCH_BUMP_ON_SHRINK = 12  # 3.6-IV0
_DELEGATION_TOKENS = 14  # 3.6-IV2
_CONTROLLER_REGISTRATION = 15  # 3.7-IV0, KIP-919
_DIRECTORIES = 17  # 3.7-IV2, KIP-858
_ELIGIBLE_LEADER_REPLICAS = 23  # 4.0-IV1, KIP-966
_CORDONED_DIRECTORIES = 30  # 4.3-IV0, KIP-1066
_HOST_RANGES = 32  # 4.4-IV1


def has_directories(metadata_version: int) -> bool:
    """Return whether partition records contain the log directory of each replica."""
    return metadata_version >= _DIRECTORIES


def has_cordoned_directories(metadata_version: int) -> bool:
    """Return whether heartbeats and records contain the cordoned directories (KIP-1066)."""
    return metadata_version >= _CORDONED_DIRECTORIES


def partition_record_version(metadata_version: int) -> int:
    """Return the version of PartitionRecord to write."""
    if metadata_version >= _ELIGIBLE_LEADER_REPLICAS:
        return 2
    return 1 if metadata_version >= _DIRECTORIES else 0


def partition_change_record_version(metadata_version: int) -> int:
    """Return the version of PartitionChangeRecord to write."""
    return partition_record_version(metadata_version)


def register_broker_record_version(metadata_version: int) -> int:
    """Return the version of RegisterBrokerRecord to write."""
    if has_cordoned_directories(metadata_version):
        return 4
    if metadata_version >= _DIRECTORIES:
        return 3
    return 2 if metadata_version >= _MIGRATION else 1


def bumps_leader_epoch_on_isr_shrink(metadata_version: int) -> bool:
    """Return whether shrinking the ISR increases the leader epoch, as in early KRaft."""
    return metadata_version < _NO_EPOCH_BUMP_ON_SHRINK


def has_delegation_tokens(metadata_version: int) -> bool:
    """Return whether the metadata log can contain delegation tokens."""
    return metadata_version >= _DELEGATION_TOKENS


def has_controller_registration(metadata_version: int) -> bool:
    """Return whether controllers register in the metadata log."""
    return metadata_version >= _CONTROLLER_REGISTRATION


# Levels with new records or fields, which a downgrade below the level would lose.
_CHANGING_METADATA = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33})


def changes_metadata(lower: int, higher: int) -> bool:
    """Return whether a downgrade from `higher` to `lower` could lose metadata."""
    return any(lower < level <= higher for level in _CHANGING_METADATA)


def has_eligible_leader_replicas(metadata_version: int) -> bool:
    """Return whether partition records can contain eligible leader replicas."""
    return metadata_version >= _ELIGIBLE_LEADER_REPLICAS


def has_host_ranges(metadata_version: int) -> bool:
    """Return whether the host of an access control entry can be a range of addresses."""
    return metadata_version >= _HOST_RANGES


# Level of share.version since which share groups may have dead-letter topics.
DEAD_LETTERS_SINCE = 2


class FeaturesImage:
    """Level by feature name; a missing feature has level 0. Callers must not change it."""

    __slots__ = (
        "finalized",
        "has_consumer_groups",
        "has_dead_letters",
        "has_share_groups",
        "has_streams_groups",
        "is_elr_enabled",
        "metadata_version",
        "transaction_version",
    )

    def __init__(self, finalized: Mapping[str, int] | None = None) -> None:
        self.finalized = finalized or {}
        level = self.finalized.get
        # The oldest supported level if the log has no record of it.
        self.metadata_version = level(METADATA_VERSION, METADATA_VERSION_MIN)
        # Whether eligible leader replicas are enabled (KIP-966).
        self.is_elr_enabled = level(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1
        # Level of `transaction.version` (KIP-890).
        self.transaction_version = level(TRANSACTION_VERSION, 0)
        # Whether these kinds of groups are enabled (KIP-848, KIP-932, KIP-1071).
        self.has_consumer_groups = level(GROUP_VERSION, 0) >= 1
        self.has_share_groups = level(SHARE_VERSION, 0) >= 1
        self.has_streams_groups = level(STREAMS_VERSION, 0) >= 1
        # Whether share groups may have dead-letter topics (KIP-1191).
        self.has_dead_letters = level(SHARE_VERSION, 0) >= DEAD_LETTERS_SINCE

    def evolve(self, changes: Mapping[str, int]) -> FeaturesImage:
        """Return these features with `changes` applied; level 0 removes a feature."""
        if not changes:
            return self
        merged = {**self.finalized, **changes}
        return FeaturesImage({name: level for name, level in merged.items() if level > 0})
