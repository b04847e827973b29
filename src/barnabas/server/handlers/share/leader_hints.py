"""Leaders that responses of share consumers name for partitions that have moved (KIP-951)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.metadata.broker_registration import Endpoint
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.storage.topic_partition import TopicIdPartition

MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """Collects the leaders of moved partitions, and their addresses on one listener."""

    __slots__ = ("_cluster", "_listener_name", "endpoints")

    def __init__(self, cluster: ClusterView, listener_name: str) -> None:
        self._cluster = cluster
        self._listener_name = listener_name
        # Addresses of the leaders by broker id.
        self.endpoints: dict[int, Endpoint] = {}

    def find(self, where: TopicIdPartition) -> tuple[int, int] | None:
        """Return leader and leader epoch of a partition; None if the partition is unknown."""
        partition = self._cluster.partition(where.topic, where.partition)
        if partition is None:
            return None
        endpoint = self._cluster.endpoint(partition.leader, self._listener_name)
        if endpoint is not None:
            self.endpoints[partition.leader] = endpoint
        return partition.leader, partition.leader_epoch
