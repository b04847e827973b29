"""Reports to the controller about the data directory of each replica of this broker (KIP-858).

Only brokers with several directories send reports. The controller knows a single directory from the
registration. Reports are collected during a turn and sent in one request. At most one request is in
flight.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata.partition_registration import RESERVED_DIRECTORIES
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryDataRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.log_dirs import AssignReplicasToDirsResponse
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import LeadershipChanges
    from barnabas.runtime.clock import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.storage.manager.log_manager import LogManager

_log = logging.getLogger(__name__)

# Delay before a rejected request is retried.
_RETRY_MS = 500
_PARTITIONS_MAX = 2_250


class _Assignment(NamedTuple):
    partition: TopicIdPartition
    directory: bytes
    on_done: Callable[[bool], None]


class DirectoryAssignments:
    """Queue of directory assignments to report to the controller."""

    __slots__ = (
        "_broker_epoch",
        "_cluster",
        "_forwarding",
        "_in_flight",
        "_last_error",
        "_logs",
        "_node_id",
        "_timer",
        "_waiting",
    )

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        forwarding: ControllerAccess,
        timer: Timer,
        cluster: ClusterView,
        logs: LogManager,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._forwarding = forwarding
        self._timer = timer
        self._cluster = cluster
        self._logs = logs
        # Latest assignment of each partition that is not sent yet.
        self._waiting: dict[TopicIdPartition, _Assignment] = {}
        # Error of the last response. Prevents repeated log lines.
        self._last_error = ErrorCode.NONE
        # Assignments of the pending request. Empty if no request is pending.
        self._in_flight: list[_Assignment] = []

    def on_changes(self, changes: LeadershipChanges) -> None:
        """Report the directories of changed partitions where the metadata has another directory."""
        for partition in (*changes.leaders, *changes.followers):
            self._compare(partition)

    def _compare(self, partition: Partition) -> None:
        key = partition.topic_partition
        directory = self._logs.directory_of(key)
        registration = self._cluster.image.topics.partition(*key)
        if directory is None or registration is None:
            return
        known = registration.directory_of(self._node_id)
        if known == directory.id:
            return
        future = self._logs.future_directory_of(key)
        if future is not None and known == future.id and known not in RESERVED_DIRECTORIES:
            # The replica is being moved to that directory.
            return
        self.assign(TopicIdPartition(partition.topic_id, *key), directory.id, lambda _: None)

    def assign(
        self, partition: TopicIdPartition, directory: bytes, on_done: Callable[[bool], None]
    ) -> None:
        """Report to the controller that the replica is in `directory`.

        Args:
            partition: the partition of the replica.
            directory: id of the directory.
            on_done: called with whether the controller accepted the assignment. Never called if a
                later assignment replaces this one before it is sent.
        """
        if not self._waiting and not self._in_flight:
            self._timer.call_soon(self._send)
        self._waiting[partition] = _Assignment(partition, directory, on_done)

    def _send(self) -> None:
        if self._in_flight or not self._waiting:
            return
        assignments = list(self._waiting.values())[:_PARTITIONS_MAX]
        for assignment in assignments:
            del self._waiting[assignment.partition]
        self._in_flight = assignments
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=_grouped(assignments),
        )
        self._forwarding.send(request, self._on_response)

    def _on_response(self, response: AssignReplicasToDirsResponse) -> None:
        assignments, self._in_flight = self._in_flight, []
        error, last_error = ErrorCode.of(response.error_code), self._last_error
        self._last_error = error
        if error is not ErrorCode.NONE:
            if error is not last_error:
                _log.warning(
                    "Controller rejected directory assignments, retrying: error=%s", error.name
                )
            for assignment in assignments:
                self._waiting.setdefault(assignment.partition, assignment)
            self._timer.call_later(_RETRY_MS, self._send)
            return
        errors = {
            (topic.topic_id, each.partition_index): each.error_code
            for directory in response.directories
            for topic in directory.topics
            for each in topic.partitions
        }
        if self._waiting:
            self._timer.call_soon(self._send)
        for partition, _, on_done in assignments:
            on_done(errors.get((partition.topic_id, partition.partition)) == ErrorCode.NONE)


def _grouped(assignments: list[_Assignment]) -> list[DirectoryDataRequest]:
    """Group the assignments by directory and topic, for the request."""
    found: dict[bytes, dict[bytes, list[PartitionDataRequest]]] = {}
    for partition, directory, _ in assignments:
        topics = found.setdefault(directory, {})
        data = PartitionDataRequest(partition_index=partition.partition)
        topics.setdefault(partition.topic_id, []).append(data)
    return [
        DirectoryDataRequest(
            id=directory,
            topics=[
                TopicDataRequest(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )
        for directory, topics in found.items()
    ]
