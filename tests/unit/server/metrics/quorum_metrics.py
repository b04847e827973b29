"""The metrics of a quorum by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.metrics.cluster_metrics import quorum_families

if TYPE_CHECKING:
    from barnabas.server.process.node import Node


def metrics(node: Node) -> dict[str, float]:
    found = {}
    for family in quorum_families(node.shared.quorum, node.observation.quorum_watch):
        ((tags, value),) = family.samples
        assert isinstance(value, int | float)
        name = family.name.rpartition(":")[2]
        found[name if not tags else f"{name} {tags[0][1]}"] = value
    return found
