"""AlterReplicaLogDirs: key 34, v0-2. Move replicas to other data directories (KIP-113)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return AlterReplicaLogDirsHandler(parts).handle_alter_replica_log_dirs


class AlterReplicaLogDirsHandler:
    """Begins the moves; DescribeLogDirs shows how far they are."""

    __slots__ = ("_moves",)

    def __init__(self, parts: ServerParts) -> None:
        self._moves = parts.log_dir_moves

    def handle_alter_replica_log_dirs(
        self,
        context: RequestContext,  # noqa: ARG002
        request: AlterReplicaLogDirsRequest,
    ) -> AlterReplicaLogDirsResponse:
        """One answer per partition; of a partition named twice the last directory counts."""
        wanted = {
            TopicPartition(topic.name, index): directory.path
            for directory in request.dirs
            for topic in directory.topics
            for index in topic.partitions
        }
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for key, path in wanted.items():
            result = AlterReplicaLogDirPartitionResult(
                partition_index=key.partition, error_code=self._moves.alter(key, path)
            )
            results.setdefault(key.topic, []).append(result)
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)
                for topic, partitions in results.items()
            ]
        )
