"""Commits and reads offsets of a group with librdkafka while its coordinator is new or moves.

librdkafka gives a caller the error NOT_COORDINATOR and looks for the new coordinator only then. The
first commit to a cluster creates `__consumer_offsets`, whose partitions get their coordinators some
time later. So the caller has to try again. A member of a group has a coordinator already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waiting import PATIENCE_S, eventually

_MOVED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def commit_offsets(consumer: Consumer, *places: TopicPartition) -> None:
    """Commit these offsets."""
    _repeat("commit", lambda: consumer.commit(offsets=list(places), asynchronous=False))


def find_committed(consumer: Consumer, *places: TopicPartition) -> list[TopicPartition]:
    """Return the committed offsets of partitions; -1001 for those that have none."""
    return _repeat("read of offsets", lambda: consumer.committed(list(places), PATIENCE_S))


def committed_offsets(consumer: Consumer, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the offsets by partition, without partitions that have none; close the consumer."""
    try:
        found = find_committed(consumer, *(TopicPartition(topic, n) for n in partitions))
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def _repeat(name: str, call: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """Call until no partition has an error. An error that stays is raised at once."""
    errors: list[KafkaError] = []

    def look() -> list[TopicPartition] | None:
        try:
            found = call()
        except KafkaException as error:
            errors[:] = [error.args[0]]
            if not (errors[0].retriable() or errors[0].code() in _MOVED):
                raise
            return None
        errors[:] = [each.error for each in found if each.error is not None]
        return None if errors else found

    return eventually(look, lambda: f"no {name} without an error: {errors}")
