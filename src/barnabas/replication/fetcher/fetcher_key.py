"""The identity of a fetcher, and the formula by which Kafka assigns partitions to fetchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.java_collections import string_hash

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicPartition

_HASH_MASK = 0xFFFF_FFFF
_HASH_SIGN = 0x8000_0000


class FetcherKey(NamedTuple):
    """The leader and the number of a fetcher."""

    leader_id: int
    fetcher_id: int

    @property
    def name(self) -> str:
        """The name of the corresponding thread in Kafka, for metrics."""
        return f"ReplicaFetcherThread-{self.fetcher_id}-{self.leader_id}"


def fetcher_id(topic_partition: TopicPartition, fetchers: int) -> int:
    """Return the fetcher id of a partition, by Kafka's formula with Java's string hash."""
    hashed = (31 * string_hash(topic_partition.topic) + topic_partition.partition) & _HASH_MASK
    if hashed & _HASH_SIGN:
        # The absolute value. As in Kafka, it is 0 for the smallest integer.
        hashed = (-hashed) & _HASH_MASK
        hashed = 0 if hashed == _HASH_SIGN else hashed
    return hashed % fetchers
