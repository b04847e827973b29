"""Finalized feature levels of the cluster (KIP-584)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.metadata_version import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


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

    def evolve(self, changes: Mapping[str, int]) -> FeaturesImage:
        """Return these features with `changes` applied; level 0 removes a feature."""
        merged = {**self.finalized, **changes}
        return FeaturesImage({name: level for name, level in merged.items() if level > 0})
