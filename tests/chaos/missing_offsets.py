"""Members with librdkafka that do not know their group's committed offsets.

A member whose committed offsets could not be fetched is kept alive.

When a coordinator moves, it answers NOT_COORDINATOR. librdkafka then looks for the new coordinator,
but does not ask it for the offsets. It never reads the assigned partitions, although it sends
heartbeats (its issue 5586). A new assignment makes it ask again.
"""

from __future__ import annotations

from collections.abc import Container

from confluent_kafka import Consumer, KafkaError, TopicPartition

# librdkafka reports this error with the code of the response, so only its text identifies it.
_TEXT = "Failed to fetch committed offset"


def tells_missing_offsets(error: KafkaError) -> bool:
    """Return whether an error of a consumer tells that it has no offsets to start from."""
    return _TEXT in error.str()


def assign_again(consumer: Consumer) -> None:
    """Assign all partitions of a member again. It reads them from their committed offsets."""
    assigned = consumer.assignment()
    if assigned:
        consumer.assign([TopicPartition(each.topic, each.partition) for each in assigned])


def uncommitted(group: str, partitions: int, committed: Container[int]) -> list[str]:
    """Return the partitions in which a group has not committed for the first time.

    A leader must not fail before that: librdkafka may look for the start of the partition again
    after a change of the leader, and read it twice from there.
    """
    return [f"group {group} in {n}" for n in range(partitions) if n not in committed]
