"""The collaborators of the links of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.replication.config import ReplicationConfig
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.loop import Runtime
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.peers.latest_offsets import LatestOffsets
    from barnabas.waiting.timing_wheel import TimingWheel


class LinkDependencies(msgspec.Struct, frozen=True):
    """The collaborators of the links."""

    node_id: int
    cluster_id: str
    config: ReplicationConfig
    runtime: Runtime
    wheel: TimingWheel
    cluster: ClusterView
    replicas: ReplicaManager
    groups: GroupCoordinator
    latest: LatestOffsets
    # Asks leaders how much of the source is left in promoted mirrors.
    remains: LatestOffsets
    auto_topics: AutoTopics
    # Access to the active controller.
    forwarding: ControllerAccess
