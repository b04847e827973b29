"""The log directories of a broker and their replicas (KIP-113, KIP-827)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barnabas.client.admin.cluster import require_broker
from barnabas.client.admin.sender import (
    AdminCall,
    each_partition,
    fixed_call,
    raise_error,
    raise_failed,
)
from barnabas.client.errors import BrokerError, ClientError, error_or_none
from barnabas.client.topic_partition import (
    K,
    TopicPartition,
    as_partition,
    as_partitions,
    numbers_by_topic,
)
from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.sender import AdminSender, Plan

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


def _move_replicas(
    targets: Mapping[TopicPartition, str],
) -> AdminCall[dict[TopicPartition, BrokerError | None]]:
    """Move replicas of the receiving broker to other directories; an error or None for each."""
    by_path: dict[str, list[TopicPartition]] = {}
    for tp, path in targets.items():
        by_path.setdefault(path, []).append(tp)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=numbers)
                    for name, numbers in numbers_by_topic(moved).items()
                ],
            )
            for path, moved in by_path.items()
        ]
    )

    def read(response: AlterReplicaLogDirsResponse) -> dict[TopicPartition, BrokerError | None]:
        return {
            tp: error_or_none(each.error_code, f"move of {tp}")
            for tp, each in each_partition((t.topic_name, t.partitions) for t in response.results)
        }

    return fixed_call(request, read)


def describe_log_dirs(
    sender: AdminSender,
    nodes: Iterable[int],
    partitions: Iterable[tuple[str, int]] | None = None,
    *,
    once: bool = False,
) -> Plan[dict[int, list[LogDirectory] | ClientError]]:
    """Describe the log directories of brokers.

    With `once` the plan makes one attempt, and an unknown broker gets an error in the result.

    Args:
        sender: sends the requests.
        nodes: ids of the brokers.
        partitions: the partitions whose replicas the result has; None means all partitions.
        once: whether to make one attempt.

    Returns:
        The directories, or an error, for each broker id.

    Raises:
        BrokerError: BROKER_NOT_AVAILABLE: a broker is unknown; not raised with `once`.
    """
    wanted = list(nodes)
    if once:
        yield from sender.refresh()
    else:
        for node in wanted:
            yield from require_broker(sender, node)

    def read(response: DescribeLogDirsResponse) -> list[LogDirectory]:
        raise_error(response.error_code, "log directories")
        directories = []
        for result in response.results:
            error = error_or_none(result.error_code, f"log directory {result.log_dir}")
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

    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(as_partitions(partitions)).items()
        ]
    call = fixed_call(DescribeLogDirsRequest(topics=topics), read)
    return (yield from sender.send_each(dict.fromkeys(wanted, call), once=once))


def describe_replica_log_dirs(
    sender: AdminSender, replicas: Iterable[tuple[int, tuple[str, int]]]
) -> Plan[dict[tuple[int, TopicPartition], ReplicaDirectories | ClientError]]:
    """Find the log directory of each (broker, partition), and the target of an active move."""
    wanted = [(node, as_partition(tp)) for node, tp in replicas]
    by_node = yield from describe_log_dirs(sender, dict.fromkeys(node for node, _ in wanted))
    found: dict[tuple[int, TopicPartition], ReplicaDirectories | ClientError] = {}
    for node, tp in wanted:
        directories = by_node[node]
        if isinstance(directories, ClientError):
            found[node, tp] = directories
        else:
            found[node, tp] = directories_of(tp, directories)
    return found


def alter_replica_log_dirs(
    sender: AdminSender, targets: Mapping[tuple[int, K], str], *, raise_errors: bool = True
) -> Plan[dict[tuple[int, TopicPartition], BrokerError | ClientError | None]]:
    """Move replicas to other log directories (paths) of the same broker (KIP-113).

    The keys of `targets` are pairs (broker id, partition).

    Returns:
        An error or None for each key. An accepted move continues on the broker.

    Raises:
        AdminResultsError: a move was refused; not raised with `raise_errors=False`.
    """
    by_node: dict[int, dict[TopicPartition, str]] = {}
    for (node, tp), path in targets.items():
        by_node.setdefault(node, {})[as_partition(tp)] = path
    for node in by_node:
        yield from require_broker(sender, node)
    results = yield from sender.send_each(
        {node: _move_replicas(part) for node, part in by_node.items()}
    )
    found: dict[tuple[int, TopicPartition], BrokerError | ClientError | None] = {}
    for node, result in results.items():
        for moved in by_node[node]:
            found[node, moved] = result if isinstance(result, ClientError) else result[moved]
    if raise_errors:
        raise_failed(found)
    return found
