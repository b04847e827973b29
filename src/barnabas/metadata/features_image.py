"""Finalised feature levels of the cluster (KIP-584)."""

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
    """Level by feature name; a feature that is absent is at level 0."""

    finalized: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        """Level of `metadata.version`; the oldest one while the log has not said."""
        return self.finalized.get(METADATA_VERSION, METADATA_VERSION_MIN)

    @property
    def is_elr_enabled(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self.finalized.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1

    def evolve(self, changes: Mapping[str, int]) -> FeaturesImage:
        """These features with `changes` made; level 0 takes a feature out."""
        merged = {**self.finalized, **changes}
        return FeaturesImage({name: level for name, level in merged.items() if level > 0})
