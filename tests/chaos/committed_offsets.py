"""Reads the committed offsets of a group with librdkafka while its coordinator may move.

librdkafka gives a caller the error NOT_COORDINATOR and looks for the new coordinator only then. So
the caller has to ask again.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waiting import PATIENCE_S, eventually

_MOVED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def committed_offsets(consumer: Consumer, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the offsets by partition, without partitions that have none; close the consumer."""
    places = [TopicPartition(topic, n) for n in partitions]

    def look() -> list[TopicPartition] | None:
        try:
            found = consumer.committed(places, PATIENCE_S)
        except KafkaException as error:
            told = error.args[0]
            if not (told.retriable() or told.code() in _MOVED):
                raise
            return None
        return None if any(each.error is not None for each in found) else found

    try:
        found = eventually(look, "the group's offsets")
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found or [] if each.offset >= 0}
