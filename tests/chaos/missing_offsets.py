"""Keeps a group member with librdkafka alive whose committed offsets could not be fetched.

When a coordinator moves, it answers NOT_COORDINATOR. librdkafka then looks for the new coordinator,
but does not ask it for the offsets. It never reads the assigned partitions, although it sends
heartbeats (its issue 5586). A new assignment makes it ask again.
"""

from __future__ import annotations

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
