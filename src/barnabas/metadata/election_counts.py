"""Counts of unusual leader elections in committed metadata (ControllerMetadataMetrics, KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import NO_LEADER

if TYPE_CHECKING:
    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.image import ClusterImage


class ElectionCounts:
    """Counts elections as a listener of the metadata publisher."""

    __slots__ = ("from_eligible", "unclean")

    def __init__(self) -> None:
        # Elections of a replica outside ISR and ELR, which may lack records; since the process
        # started.
        self.unclean = 0
        # Elections of a replica in the ELR, which has all committed records; since the process
        # started.
        self.from_eligible = 0

    def on_image(self, delta: ClusterDelta, _image: ClusterImage) -> None:
        """Count the elections of a delta."""
        for _, _, before, after in delta.topics_delta.changed_partitions():
            leader = after.leader
            if before is None or leader in (before.leader, NO_LEADER) or leader in before.isr:
                continue
            if leader in before.elr:
                self.from_eligible += 1
            else:
                self.unclean += 1
