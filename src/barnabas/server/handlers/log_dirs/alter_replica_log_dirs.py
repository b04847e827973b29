"""AlterReplicaLogDirs (key 34, v0-2): move replicas to other data directories (KIP-113)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas.server.dispatch.slices import drained
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that moves replicas between data directories."""
    return AlterReplicaLogDirsHandler(dependencies).handle_alter_replica_log_dirs


class AlterReplicaLogDirsHandler:
    """Starts the moves. DescribeLogDirs reports their progress."""

    __slots__ = ("_moves",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._moves = dependencies.log_dir_moves

    def handle_alter_replica_log_dirs(
        self,
        context: RequestContext,
        request: AlterReplicaLogDirsRequest,
    ) -> AlterReplicaLogDirsResponse | None:
        """Begin a move for each partition. The last directory of a repeated partition counts."""
        return context.in_slices(self._build_response(request))

    def _build_response(
        self, request: AlterReplicaLogDirsRequest
    ) -> Generator[None, None, AlterReplicaLogDirsResponse]:
        paths: dict[TopicPartition, str] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    paths[TopicPartition(topic.name, index)] = directory.path
                    yield
                yield
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for key, path in drained(paths):
            result = AlterReplicaLogDirPartitionResult(
                partition_index=key.partition, error_code=self._moves.alter(key, path)
            )
            results.setdefault(key.topic, []).append(result)
            yield
        topics = yield from gradually(
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)
            for topic, partitions in drained(results)
        )
        return AlterReplicaLogDirsResponse(results=topics)
