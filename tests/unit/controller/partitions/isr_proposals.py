"""AlterPartition requests with proposed in-sync replicas."""

from __future__ import annotations

from barnabas.protocol.messages.partition_changes import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataRequest,
    TopicDataRequest,
)
from unit.metadata.clusters import topic_id


def proposal(
    isr: list[int],
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    index: int = 0,
    recovery: int = 0,
) -> PartitionDataRequest:
    return PartitionDataRequest(
        partition_index=index,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=5) for each in isr],
        leader_recovery_state=recovery,
        partition_epoch=partition_epoch,
    )


def request(
    each: PartitionDataRequest, broker_id: int = 1, epoch: int = 5, number: int = 1
) -> AlterPartitionRequest:
    return AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        topics=[TopicDataRequest(topic_id=topic_id(number), partitions=[each])],
    )
