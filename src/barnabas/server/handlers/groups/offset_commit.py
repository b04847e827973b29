"""OffsetCommit (key 8, v0-10): commit offsets of a group (v10 has topic ids, KIP-848).

v0 was for offsets in ZooKeeper. Like Kafka 3.9 without ZooKeeper, this broker responds
UNSUPPORTED_VERSION for each partition. v1 may include the time of the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that commits offsets."""
    return OffsetCommitHandler(dependencies).handle_offset_commit


class OffsetCommitHandler:
    """Passes the request to the group coordinator."""

    __slots__ = ("_cluster", "_offsets")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._offsets = dependencies.groups.offsets

    def handle_offset_commit(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> OffsetCommitResponse | None:
        """Commit the offsets. The response follows when they are written and replicated."""
        if context.version == 0:
            return context.in_slices(self._refused(request))
        context.in_slices(self._offsets.commit(request, context.version, context.respond))
        return None

    def _refused(self, request: OffsetCommitRequest) -> Generator[None, None, OffsetCommitResponse]:
        topics = []
        for topic in request.topics:
            error = ErrorCode.UNSUPPORTED_VERSION
            if self._cluster.topic_id(topic.name) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = yield from gradually(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
                for partition in topic.partitions
            )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
            yield
        return OffsetCommitResponse(topics=topics)
