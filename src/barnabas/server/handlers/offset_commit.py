"""OffsetCommit: key 8, v0-10. Commits a group's offsets (v10 names topics by id, KIP-848).

v0 meant offsets in ZooKeeper: a broker without it says UNSUPPORTED_VERSION for each partition, as
Kafka 3.9 does. v1 may say when an offset was committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return OffsetCommitHandler(parts).handle_offset_commit


class OffsetCommitHandler:
    """Hands the request to the group coordinator."""

    __slots__ = ("_cluster", "_groups")

    def __init__(self, parts: ServerParts) -> None:
        self._cluster = parts.cluster
        self._groups = parts.groups

    def handle_offset_commit(self, context: RequestContext, request: OffsetCommitRequest) -> None:
        """Answered when the offsets are committed."""
        if context.version == 0:
            context.respond(self._refused(request))
            return
        context.in_slices(self._groups.commit_offsets(request, context.version, context.respond))

    def _refused(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        topics = []
        for topic in request.topics:
            error = ErrorCode.UNSUPPORTED_VERSION
            if self._cluster.topic_id(topic.name) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
                for partition in topic.partitions
            ]
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return OffsetCommitResponse(topics=topics)
