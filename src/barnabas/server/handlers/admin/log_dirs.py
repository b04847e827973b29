"""DescribeLogDirs (key 35, v0-5) and AlterReplicaLogDirs (34, v0-2): data directories (KIP-113).

DescribeLogDirs lists directories, their replicas and disk space. v3 adds a top-level error code, v4
the sizes of the volumes (KIP-827), v5 the directories that take no new partitions (KIP-1066).
AlterReplicaLogDirs moves replicas to other directories; no version adds a field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from barnabas.server.dispatch.slices import drained
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.replication.log_dir_moves import LogDirMoves
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.disk import Disk
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.log.log import Log
    from barnabas.storage.manager.log_manager import LogManager


_UNKNOWN_LAG = -1


class DescribeLogDirsHandler:
    """Builds responses from the log manager."""

    __slots__ = ("_disk", "_logs", "_replicas")

    def __init__(self, disk: Disk, logs: LogManager, replicas: ReplicaManager) -> None:
        self._disk = disk
        self._logs = logs
        self._replicas = replicas

    def handle_describe_log_dirs(
        self,
        context: RequestContext,
        request: DescribeLogDirsRequest,
    ) -> DescribeLogDirsResponse | None:
        """Describe every directory, with the requested partitions that it contains."""
        return context.in_slices(self._build_response(request))

    def _build_response(
        self, request: DescribeLogDirsRequest
    ) -> Generator[None, None, DescribeLogDirsResponse]:
        requested = yield from _requested_partitions(request)
        results: list[DescribeLogDirsResult] = []
        for directory in self._logs.directories:
            if directory.is_online:
                described = yield from self._describe(directory, requested)
                results.append(described)
        results += [_offline(path) for path in self._logs.offline_paths]
        return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=results)

    def _describe(
        self, directory: LogDirectory, requested: dict[str, set[int]] | None
    ) -> Generator[None, None, DescribeLogDirsResult]:
        try:
            total, usable = self._disk.space(directory.path)
        except OSError:
            return _offline(directory.path)
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for key, log in self._logs.logs_in(directory).items():
            yield
            if requested is None or key.partition in requested.get(key.topic, ()):
                topics.setdefault(key.topic, []).append(self._partition(key, log))
        return DescribeLogDirsResult(
            error_code=ErrorCode.NONE,
            log_dir=directory.path,
            topics=[
                DescribeLogDirsTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
            total_bytes=total,
            usable_bytes=usable,
            is_cordoned=directory.is_cordoned,
        )

    def _partition(self, key: TopicPartition, log: Log) -> DescribeLogDirsPartition:
        is_future = self._logs.futures.get(key) is log
        return DescribeLogDirsPartition(
            partition_index=key.partition,
            partition_size=log.size,
            offset_lag=self._lag(key, log, is_future),
            is_future_key=is_future,
        )

    def _lag(self, key: TopicPartition, log: Log, is_future: bool) -> int:
        """Return the offset lag of a log.

        A future log is compared with the log end offset of the current log, any other log with its
        high watermark.
        """
        partition = self._replicas.partition(key)
        if isinstance(partition, ErrorCode):
            return _UNKNOWN_LAG
        if is_future:
            return partition.log.log_end_offset - log.log_end_offset
        return max(0, log.high_watermark - log.log_end_offset)


def _requested_partitions(
    request: DescribeLogDirsRequest,
) -> Generator[None, None, dict[str, set[int]] | None]:
    """Return the requested partitions by topic, or None for all partitions."""
    if request.topics is None:
        return None
    requested: dict[str, set[int]] = {}
    for topic in request.topics:
        requested.setdefault(topic.topic, set()).update(topic.partitions)
        yield
    return requested


def _offline(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[])


def alter_replica_log_dirs(log_dir_moves: LogDirMoves) -> Handle:
    """Return the handler that moves replicas between data directories."""

    def handle_alter_replica_log_dirs(
        context: RequestContext,
        request: AlterReplicaLogDirsRequest,
    ) -> AlterReplicaLogDirsResponse | None:
        """Begin a move for each partition. The last directory of a repeated partition counts."""
        return context.in_slices(build_response(request))

    def build_response(
        request: AlterReplicaLogDirsRequest,
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
                partition_index=key.partition, error_code=log_dir_moves.alter(key, path)
            )
            results.setdefault(key.topic, []).append(result)
            yield
        topics = yield from gradually(
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)
            for topic, partitions in drained(results)
        )
        return AlterReplicaLogDirsResponse(results=topics)

    return handle_alter_replica_log_dirs
