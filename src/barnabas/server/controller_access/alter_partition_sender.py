"""Sends ISR changes of partition leaders to the controller (AlterPartition, KIP-497)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.alter_partition import AlterPartitionResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.partition_changes import (
        AlterPartitionRequest,
        AlterPartitionResponse,
    )
    from barnabas.replication.partition.alter_partition import AlterPartitionProposal
    from barnabas.runtime.clock import Timer
    from barnabas.server.controller_access.controller_access import ControllerAccess

_log = logging.getLogger(__name__)


class ForwardedAlterPartition:
    """Sends one request per proposal. `on_done` is never called before `submit` returns."""

    __slots__ = ("_broker_epoch", "_forwarding", "_node_id", "_timer")

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
