"""Records of the controller that break an invariant do not reach the log."""

from __future__ import annotations

import pytest

from barnabas.controller.appended_state import check_records
from barnabas.metadata.image import ClusterDelta, ClusterImage, Provenance
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.protocol.records.nodes import ProducerIdsRecord
from barnabas.protocol.records.topics import PartitionChangeRecord, PartitionRecord, TopicRecord

TOPIC_ID = bytes(15) + b"\x01"


def delta_with(
    replicas: list[int], isr: list[int], leader: int, elr: list[int] | None = None
) -> ClusterDelta:
    delta = ClusterDelta(ClusterImage())
    delta.replay(TopicRecord(name="a", topic_id=TOPIC_ID))
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=replicas,
        isr=isr,
        removing_replicas=[],
        adding_replicas=[],
        leader=leader,
        leader_epoch=3,
        partition_epoch=7,
        eligible_leader_replicas=elr,
    )
    delta.replay(partition)
    return delta


def test_a_consistent_partition_is_accepted() -> None:
    check_records(delta_with([1, 2, 3], [1, 2], leader=1, elr=[3]))
    check_records(delta_with([1], [1], leader=NO_LEADER))


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (delta_with([1, 2], [1, 3], leader=1), r"IsrSubsetOfReplicas: a-0 isr=\(1, 3\)"),
        (delta_with([1, 2], [1], leader=2), "LeaderInIsr: a-0 leader=2"),
        (delta_with([1, 2], [1], leader=1, elr=[1]), "ElrOutsideIsr: a-0"),
        (delta_with([1, 2], [1], leader=1, elr=[3]), "ElrOutsideIsr: a-0"),
        (delta_with([1, 1], [1], leader=1), "OneDirectoryPerReplica: a-0"),
    ],
    ids=lambda each: each.split(":")[0] if isinstance(each, str) else "",
)
def test_a_partition_that_breaks_an_invariant_is_refused(delta: ClusterDelta, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_records(delta)


def test_the_epochs_of_a_changed_partition_increase() -> None:
    image = delta_with([1, 2], [1, 2], leader=1).apply(Provenance(1, 1, -1))
    delta = ClusterDelta(image)
    delta.replay(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
    check_records(delta)
    topic = delta.topics_delta.changed[TOPIC_ID]
    before = image.topics.by_name("a")
    assert before is not None
    topic.partition_changes[0] = before.partitions[0]
    with pytest.raises(AssertionError, match="EpochsGrow: a-0 partition_epoch=7 then 7"):
        check_records(delta)


def test_blocks_of_producer_ids_increase() -> None:
    delta = ClusterDelta(ClusterImage(next_producer_id=2_000))
    delta.replay(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=2_000))
    with pytest.raises(AssertionError, match="ProducerIdsGrow: before=2000 after=2000"):
        check_records(delta)
