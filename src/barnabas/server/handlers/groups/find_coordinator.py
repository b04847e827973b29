"""FindCoordinator (key 10, v0-6): find the coordinator of a group, transaction or share partition.

v1 adds key types, v4 batches of keys (KIP-699), v6 share partitions (KIP-932).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_runtime import partition_for
from barnabas.coordinator.share.share_partition_state import SharePartitionKey
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.server.controller_access.auto_topics import (
    OFFSETS_TOPIC,
    SHARE_GROUP_TOPIC,
    TRANSACTION_TOPIC,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.cluster.lost_leaders import LostLeaders
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.dispatch.request import RequestContext


_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
# The internal topic with the coordinators' state, by key type.
_TOPICS = {_GROUP: OFFSETS_TOPIC, _TRANSACTION: TRANSACTION_TOPIC, _SHARE: SHARE_GROUP_TOPIC}
_SHARE_SINCE = 6
_BATCHED_SINCE = 4


class FindCoordinatorHandler:
    """Builds responses from the metadata image, and creates a missing internal topic."""

    __slots__ = ("_auto_topics", "_cluster", "_lost_leaders")

    def __init__(
        self, cluster: ClusterView, auto_topics: AutoTopics, lost_leaders: LostLeaders
    ) -> None:
        self._cluster = cluster
        self._auto_topics = auto_topics
        self._lost_leaders = lost_leaders

    def handle_find_coordinator(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse | None:
        """Find the coordinator of each key.

        If the broker of the first key is lost, wait for the election of another one.
        """
        leader = self._leader_of_first(context.version, request)
        if self._lost_leaders.delay_for(leader, lambda: self._serve_delayed(context, request)):
            return None
        return context.in_slices(self._build_response(context, request))

    def _leader_of_first(self, version: int, request: FindCoordinatorRequest) -> int:
        keys = request.coordinator_keys if version >= _BATCHED_SINCE else [request.key]
        topic = self._cluster.image.topics.by_name(_TOPICS.get(request.key_type, ""))
        if topic is None or not keys:
            return NO_LEADER
        partition = topic.partitions.get(partition_for(keys[0], len(topic.partitions)))
        return NO_LEADER if partition is None else partition.leader

    def _serve_delayed(self, context: RequestContext, request: FindCoordinatorRequest) -> None:
        if context.is_needed:
            context.respond_in_slices(self._build_response(context, request))

    def _build_response(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> Generator[None, None, FindCoordinatorResponse]:
        version = context.version
        keys = request.coordinator_keys if version >= _BATCHED_SINCE else [request.key]
        coordinators = yield from gradually(
            self._find(version, request.key_type, key, context.listener_name) for key in keys
        )
        if version >= _BATCHED_SINCE:
            return FindCoordinatorResponse(coordinators=coordinators)
        first = coordinators[0]
        return FindCoordinatorResponse(
            error_code=first.error_code,
            error_message=first.error_message,
            node_id=first.node_id,
            host=first.host,
            port=first.port,
            coordinators=[],
        )

    def _find(self, version: int, key_type: int, key: str, listener_name: str) -> Coordinator:
        canonical = _canonical_key(version, key_type, key)
        if canonical is None:
            refused = _failed(key, ErrorCode.INVALID_REQUEST)
            if key_type == _SHARE and version >= _BATCHED_SINCE:
                # Kafka sends no error message in this case.
                refused.error_message = ""
            return refused
        name = _TOPICS[key_type]
        topic = self._cluster.image.topics.by_name(name)
        if topic is None:
            self._auto_topics.create([name])
            return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = topic.partitions.get(partition_for(canonical, len(topic.partitions)))
        endpoint = (
            None if partition is None else self._cluster.endpoint(partition.leader, listener_name)
        )
        if partition is None or endpoint is None:
            return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(
            key=key,
            node_id=partition.leader,
            host=endpoint.host,
            port=endpoint.port,
            error_code=ErrorCode.NONE,
            error_message=ErrorCode.NONE.name if version < _BATCHED_SINCE else "",
        )


def _canonical_key(version: int, key_type: int, key: str) -> str | None:
    """Return the key that selects the partition of the internal topic; None if it is invalid."""
    if key_type in (_GROUP, _TRANSACTION):
        return key
    if key_type != _SHARE or version < _SHARE_SINCE:
        return None
    try:
        return SharePartitionKey.parse(key).coordinator_key
    except ValueError:
        return None


def _failed(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=error.message
    )
