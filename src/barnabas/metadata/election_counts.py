"""How leaders came to lead, counted from what is committed (ControllerMetadataMetrics, KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import NO_LEADER

if TYPE_CHECKING:
    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.image import ClusterImage


class ElectionCounts:
    """A listener of the metadata publisher."""

    __slots__ = ("from_eligible", "unclean")

    def __init__(self) -> None:
        # Elections since the process began: of a replica out of sync, which may lack records.
        self.unclean = 0
        # Of an eligible replica that was out of the ISR: nothing is lost.
        self.from_eligible = 0

    def on_image(self, delta: ClusterDelta, _image: ClusterImage) -> None:
        """Count the changes of leaders."""
        for _, _, before, after in delta.topics_delta.changed_partitions():
            leader = after.leader
            if before is None or leader in (before.leader, NO_LEADER) or leader in before.isr:
                continue
            if leader in before.elr:
                self.from_eligible += 1
            else:
                self.unclean += 1
