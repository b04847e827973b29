"""Finalized feature levels of the cluster (KIP-584)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.metadata_version import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

# Level of share.version since which share groups may have dead-letter topics.
DEAD_LETTERS_SINCE = 2


class FeaturesImage(msgspec.Struct, frozen=True):
    """Level by feature name; a missing feature has level 0."""

    finalized: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        """Level of `metadata.version`.

        It is the oldest supported level if the log has no record of it.
        """
        return self.finalized.get(METADATA_VERSION, METADATA_VERSION_MIN)

    @property
    def is_elr_enabled(self) -> bool:
        """Whether eligible leader replicas are enabled (KIP-966)."""
        return self.finalized.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1

    @property
    def transaction_version(self) -> int:
        """Level of `transaction.version` (KIP-890)."""
        return self.finalized.get(TRANSACTION_VERSION, 0)

    @property
    def has_consumer_groups(self) -> bool:
        """Whether consumer groups are enabled: `group.version` is 1 (KIP-848)."""
        return self.finalized.get(GROUP_VERSION, 0) >= 1

    @property
    def has_share_groups(self) -> bool:
        """Whether share groups are enabled: `share.version` is at least 1 (KIP-932)."""
        return self.finalized.get(SHARE_VERSION, 0) >= 1

    @property
    def has_streams_groups(self) -> bool:
        """Whether streams groups are enabled: `streams.version` is 1 (KIP-1071)."""
        return self.finalized.get(STREAMS_VERSION, 0) >= 1

    @property
    def has_dead_letters(self) -> bool:
        """Whether share groups may have dead-letter topics: `share.version` is 2 (KIP-1191)."""
        return self.finalized.get(SHARE_VERSION, 0) >= DEAD_LETTERS_SINCE

    def evolve(self, changes: Mapping[str, int]) -> FeaturesImage:
        """Return these features with `changes` applied; level 0 removes a feature."""
        merged = {**self.finalized, **changes}
        return FeaturesImage({name: level for name, level in merged.items() if level > 0})
