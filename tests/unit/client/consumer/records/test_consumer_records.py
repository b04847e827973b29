"""Records of a poll are freed partition by partition while they are read as columns."""

from __future__ import annotations

import weakref

from barnabas.client.consumer.records.consumer_records import ConsumerRecords
from barnabas.client.consumer.records.partition_records import PartitionRecords
from barnabas.client.topic_partition import TopicPartition


class Watched(PartitionRecords):
    """One that can be seen to be freed: it has no slots."""


def make_parts() -> dict[TopicPartition, PartitionRecords]:
    return {tp: Watched(tp, ()) for tp in (TopicPartition("t", number) for number in range(3))}


def test_batches_are_returned_in_order_on_each_call() -> None:
    parts = make_parts()
    records = ConsumerRecords(parts, {})
    for _ in range(2):
        assert list(records.batches()) == list(parts.values())


def test_a_batch_is_freed_when_the_next_one_is_requested() -> None:
    batches = ConsumerRecords(make_parts(), {}).batches()
    part = next(batches)
    first = weakref.ref(part)
    part = next(batches)
    assert first() is None
    assert part.partition == 1
