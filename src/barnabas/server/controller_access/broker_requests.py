"""Requests of a broker to the controller: changes of ISRs, data directories, producer ids.

Leaders propose ISR changes by AlterPartition (KIP-497). Only brokers with several directories
report the directory of each replica (KIP-858), because the controller knows a single directory from
the registration. Producer ids come from blocks that the controller allocates (KIP-730).
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
from barnabas.replication.partition.isr import AlterPartitionResult
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.log_dirs import AssignReplicasToDirsResponse
    from barnabas.protocol.messages.nodes import AllocateProducerIdsResponse
    from barnabas.protocol.messages.partition_changes import (
        AlterPartitionRequest,
        AlterPartitionResponse,
    )
    from barnabas.replication.partition.isr import AlterPartitionProposal
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import LeadershipChanges
    from barnabas.runtime.clock import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.storage.manager.log_manager import LogManager

    # Called with a producer id and NONE, or with -1 and an error.
    OnProducerId = Callable[[int, ErrorCode], None]


_log = logging.getLogger(__name__)


class ForwardedAlterPartition:
    """Sends one request per proposal. `on_done` is never called before `submit` returns."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        forwarding: ControllerAccess,
        timer: Timer,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._forwarding = forwarding
        self._timer = timer

    def submit(
        self, proposal: AlterPartitionProposal, on_done: Callable[[AlterPartitionResult], None]
    ) -> None:
        """Send the proposal in the next turn of the loop."""

        def on_response(response: AlterPartitionResponse) -> None:
            on_done(_result_of(proposal, response))

        request = self._request(proposal)
        self._timer.call_soon(lambda: self._forwarding.send(request, on_response))

    def _request(self, proposal: AlterPartitionProposal) -> AlterPartitionRequest:
        from barnabas.protocol.messages import partition_changes

        return partition_changes.AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                partition_changes.TopicDataRequest(
                    topic_id=proposal.topic_id,
                    partitions=[
                        partition_changes.PartitionDataRequest(
                            partition_index=proposal.topic_partition.partition,
                            leader_epoch=proposal.leader_epoch,
                            new_isr_with_epochs=[
                                partition_changes.BrokerState(
                                    broker_id=broker_id, broker_epoch=broker_epoch
                                )
                                for broker_id, broker_epoch in proposal.new_isr
                            ],
                            leader_recovery_state=proposal.leader_recovery_state,
                            partition_epoch=proposal.partition_epoch,
                        )
                    ],
                )
            ],
        )


def _result_of(
    proposal: AlterPartitionProposal, response: AlterPartitionResponse
) -> AlterPartitionResult:
    """Return the result for the proposal's partition.

    If the response lacks the partition, the result is UNKNOWN_SERVER_ERROR and the proposal is
    retried.
    """
    if response.error_code:
        return AlterPartitionResult(ErrorCode.of(response.error_code))
    for topic in response.topics:
        for partition in topic.partitions:
            if (
                topic.topic_id == proposal.topic_id
                and partition.partition_index == proposal.topic_partition.partition
            ):
                return AlterPartitionResult(
                    ErrorCode.of(partition.error_code),
                    partition.leader_id,
                    partition.leader_epoch,
                    tuple(partition.isr),
                    partition.partition_epoch,
                    partition.leader_recovery_state,
                )
    _log.error(
        "Partition missing in the AlterPartition response: partition=%s", proposal.topic_partition
    )
    return AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)


# Delay before a rejected request is retried.
_RETRY_MS = 500
_PARTITIONS_MAX = 2_250


class _Assignment(NamedTuple):
    partition: TopicIdPartition
    directory: bytes
    on_done: Callable[[bool], None]


class DirectoryAssignments:
    """Queue of directory assignments to report to the controller.

    Reports are collected during a turn and sent in one request. At most one request is in flight.
    """

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


NO_PRODUCER_ID = -1
_WAITING_MAX = 10_000


class ProducerIds:
    """Assigns producer ids that are unique in the cluster."""

    def __init__(
        self, node_id: int, broker_epoch: Callable[[], int], forwarding: ControllerAccess
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._forwarding = forwarding
        # Unused ids of the current block: `_next` is inclusive, `_end` is exclusive.
        self._next = 0
        self._end = 0
        # Callbacks that wait for the next block, in order. Not empty while a request is pending.
        self._waiting: list[OnProducerId] = []

    def next_id(self, on_id: OnProducerId) -> None:
        """Call `on_id` with a new id, before this method returns if the block has unused ids."""
        if self._next < self._end:
            self._next += 1
            on_id(self._next - 1, ErrorCode.NONE)
            return
        if len(self._waiting) >= _WAITING_MAX:
            on_id(NO_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._waiting.append(on_id)
        if len(self._waiting) == 1:
            self._request_block()

    def _request_block(self) -> None:
        from barnabas.protocol.messages.nodes import AllocateProducerIdsRequest

        request = AllocateProducerIdsRequest(
            broker_id=self._node_id, broker_epoch=self._broker_epoch()
        )
        self._forwarding.send(request, self._on_block)

    def _on_block(self, response: AllocateProducerIdsResponse) -> None:
        waiting, self._waiting = self._waiting, []
        if response.error_code:
            for on_id in waiting:
                # The request was valid, so return an error that makes the producer retry.
                on_id(NO_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._next = response.producer_id_start
        self._end = response.producer_id_start + response.producer_id_len
        for on_id in waiting:
            self.next_id(on_id)
