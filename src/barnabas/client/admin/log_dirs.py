"""The log directories of a broker and their replicas (KIP-113, KIP-827)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, broker_error
from barnabas.client.topic_partition import TopicPartition, by_topic
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.protocol.schema import Message

__all__ = ["LogDirectory", "ReplicaDirectories", "ReplicaInfo"]


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One replica in a log directory; `size` in bytes."""

    size: int
    # Records between its log end offset and the high watermark; a future replica is compared with
    # the log end offset of the current replica.
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """One log directory of a broker."""

    path: str
    # The error of an unusable directory, else None.
    error: BrokerError | None
    # Size and free space of the volume in bytes; -1 if the broker does not send them.
    total_bytes: int
    usable_bytes: int
    replicas: dict[TopicPartition, ReplicaInfo]


@dataclass(frozen=True, slots=True)
class ReplicaDirectories:
    """Directories of a replica on its broker; a path is None if there is no replica."""

    path: str | None = None
    offset_lag: int = -1
    # The directory to which the replica is moving, and the offset lag of that copy.
    future_path: str | None = None
    future_offset_lag: int = -1


def directories_of(tp: TopicPartition, directories: Iterable[LogDirectory]) -> ReplicaDirectories:
    """Find the directories of one replica among all directories of its broker."""
    found = ReplicaDirectories()
    for directory in directories:
        replica = directory.replicas.get(tp)
        if replica is None:
            continue
        if replica.is_future:
            found = replace(found, future_path=directory.path, future_offset_lag=replica.offset_lag)
        else:
            found = replace(found, path=directory.path, offset_lag=replica.offset_lag)
    return found


def alter_replica_log_dirs(
    targets: Mapping[TopicPartition, str],
) -> AdminCall[dict[TopicPartition, BrokerError | None]]:
    """Move replicas of the receiving broker to other directories; an error or None for each."""

    def build(_version: int) -> Message:
        by_path: dict[str, list[tuple[TopicPartition, int]]] = {}
        for tp, path in targets.items():
            by_path.setdefault(path, []).append((tp, tp.partition))
        return AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=name, partitions=numbers)
                        for name, numbers in by_topic(pairs).items()
                    ],
                )
                for path, pairs in by_path.items()
            ]
        )

    def read(response: Message) -> dict[TopicPartition, BrokerError | None]:
        assert isinstance(response, AlterReplicaLogDirsResponse)
        found: dict[TopicPartition, BrokerError | None] = {}
        for topic in response.results:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic_name, each.partition_index)
                code = each.error_code
                found[tp] = broker_error(code, f"move of {tp}") if code else None
        return found

    return AdminCall(ApiKey.ALTER_REPLICA_LOG_DIRS, build, read)


def describe_log_dirs() -> AdminCall[list[LogDirectory]]:
    """Describe all log directories of the receiving broker."""

    def build(_version: int) -> Message:
        return DescribeLogDirsRequest(topics=None)

    def read(response: Message) -> list[LogDirectory]:
        assert isinstance(response, DescribeLogDirsResponse)
        raise_error(response.error_code, "log directories")
        directories = []
        for result in response.results:
            code = result.error_code
            error = broker_error(code, f"log directory {result.log_dir}") if code else None
            replicas = {
                TopicPartition(topic.name, p.partition_index): ReplicaInfo(
                    p.partition_size, p.offset_lag, p.is_future_key
                )
                for topic in result.topics
                for p in topic.partitions
            }
            directories.append(
                LogDirectory(
                    result.log_dir, error, result.total_bytes, result.usable_bytes, replicas
                )
            )
        return directories

    return AdminCall(ApiKey.DESCRIBE_LOG_DIRS, build, read)
