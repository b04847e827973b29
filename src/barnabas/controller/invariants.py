"""Invariants of the records that the active controller is about to append.

The records come from this process. A violation is therefore a fault of this code, and an assertion
keeps it out of the log, where every node would replay it. Values from requests are validated before
records are made, and records of other controllers by the replay (`MetadataReplayError`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.image import NO_PRODUCER_ID
from barnabas.metadata.partition_registration import NO_LEADER

if TYPE_CHECKING:
    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.partition_registration import PartitionRegistration


def check_records(delta: ClusterDelta) -> None:
    """Assert that the replayed records of one batch keep the invariants of the metadata."""
    for topic in delta.topics_delta.changed.values():
        before = topic.image.partitions
        for index, partition in topic.partition_changes.items():
            _check_partition(f"{topic.name}-{index}", before.get(index), partition)
    _check_brokers(delta)
    next_id = delta.next_producer_id
    if next_id is not None and delta.image.next_producer_id != NO_PRODUCER_ID:
        assert next_id > delta.image.next_producer_id, (
            f"ProducerIdsGrow: before={delta.image.next_producer_id} after={next_id}"
        )


def _check_partition(
    name: str, before: PartitionRegistration | None, after: PartitionRegistration
) -> None:
    replicas, isr, leader = after.replicas, after.isr, after.leader
    for replica in isr:
        assert replica in replicas, f"IsrSubsetOfReplicas: {name} isr={isr} replicas={replicas}"
    assert leader == NO_LEADER or leader in isr, f"LeaderInIsr: {name} leader={leader} isr={isr}"
    for replica in after.elr:
        assert replica in replicas, f"ElrOutsideIsr: {name} elr={after.elr} replicas={replicas}"
        assert replica not in isr, f"ElrOutsideIsr: {name} elr={after.elr} isr={isr}"
    assert len(set(replicas)) == len(replicas) == len(after.directories), (
        f"OneDirectoryPerReplica: {name} replicas={replicas} directories={after.directories}"
    )
    if before is None:
        return
    assert after.partition_epoch > before.partition_epoch, (
        f"EpochsGrow: {name} partition_epoch={before.partition_epoch} then {after.partition_epoch}"
    )
    is_same_leader = leader == before.leader
    assert after.leader_epoch > before.leader_epoch or (
        is_same_leader and after.leader_epoch == before.leader_epoch
    ), (
        f"EpochsGrow: {name} leader={before.leader} then {leader} "
        f"leader_epoch={before.leader_epoch} then {after.leader_epoch}"
    )


def _check_brokers(delta: ClusterDelta) -> None:
    for broker_id, after in delta.broker_changes.items():
        before = delta.image.brokers.get(broker_id)
        if before is not None and after is not None:
            assert after.epoch >= before.epoch, (
                f"EpochsGrow: broker={broker_id} epoch={before.epoch} then {after.epoch}"
            )
