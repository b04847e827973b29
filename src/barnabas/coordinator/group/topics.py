"""The topics that the group coordinator uses: metadata with hashes, and assignments by topic id."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from barnabas.runtime.packages import needed_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class TopicsView(Protocol):
    """Names, ids and partitions of topics."""

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of a topic, or None if it does not exist."""
        ...

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, or None if it does not exist."""
        ...

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic has that partition."""
        ...

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of the topic, 0 if it does not exist."""
        ...

    def partition_racks(self, name: str) -> Iterator[list[str]]:
        """Yield the racks of the replicas of each partition; brokers may have none."""
        ...

    def topic_names(self) -> Iterator[str]:
        """Yield the names of all topics."""
        ...

    def version(self) -> int:
        """Return the offset of the metadata that these methods show."""
        ...


_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<Q")
_MAGIC = b"\x00"


class TopicHashes:
    """The hashes of the subscribed topics of one shard."""

    __slots__ = ("_by_name", "_topics")

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        # Hash by topic name. `forget` removes changed topics.
        self._by_name: dict[str, int] = {}

    def forget(self, names: Iterable[str]) -> None:
        """Compute the hashes of changed topics anew."""
        for name in names:
            self._by_name.pop(name, None)

    def of_topics(self, names: Iterable[str]) -> int:
        """Return the hash of the existing ones of these topics; 0 if none exists."""
        found: dict[str, int] = {}
        for name in names:
            topic_id = self._topics.topic_id(name)
            if topic_id is None:
                continue
            if name not in self._by_name:
                racks = self._topics.partition_racks(name)
                self._by_name[name] = hash_topic(name, topic_id, list(racks))
            found[name] = self._by_name[name]
        return hash_group(found)


def hash_topic(name: str, topic_id: bytes, racks: list[list[str]]) -> int:
    """Return the hash of a topic, as Kafka computes it.

    Args:
        name: its name.
        topic_id: its id.
        racks: the racks of the replicas of each partition, in the order of the partitions.
    """
    content = bytearray(_MAGIC)
    # Java adds the id as two numbers, and the hash stream is little-endian.
    content += topic_id[7::-1] + topic_id[:7:-1]
    content += _string(name) + _INT32.pack(len(racks))
    for index, own in enumerate(racks):
        content += _INT32.pack(index)
        for rack in sorted(own):
            content += _INT32.pack(len(rack.encode("utf-16-le")) // 2) + _string(rack)
    return _hashed(content)


def hash_group(topics: Mapping[str, int]) -> int:
    """Return the hash of the topics of a group: their hashes, in the order of their names."""
    if not topics:
        return 0
    words = b"".join(_INT64.pack(topics[name] % (1 << 64)) for name in sorted(topics))
    return _hashed(words)


def _string(text: str) -> bytes:
    """Return a string as the hash stream adds it: UTF-16 code units, then their number."""
    units = text.encode("utf-16-le")
    return units + _INT32.pack(len(units) // 2)


def _hashed(content: bytes | bytearray) -> int:
    """Return the XXH3 hash as a signed number."""
    with needed_for("a consumer group"):
        import xxhash

    unsigned: int = xxhash.xxh3_64_intdigest(bytes(content))
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


# A target assignment: the partitions of each topic, by topic id. No set is empty.
Target = Mapping[bytes, frozenset[int]]
# Partitions that a member owns: by topic id and partition, the epoch in which the partition was
# assigned to the member (KIP-1251). No inner mapping is empty.
Owned = Mapping[bytes, Mapping[int, int]]

NOTHING: Mapping[bytes, frozenset[int]] = MappingProxyType({})
NOTHING_OWNED: Mapping[bytes, Mapping[int, int]] = MappingProxyType({})


def target_of(partitions: Mapping[bytes, Iterable[int]]) -> Target:
    """Return the target assignment without empty topics."""
    frozen = {topic_id: frozenset(indexes) for topic_id, indexes in partitions.items()}
    return {topic_id: indexes for topic_id, indexes in frozen.items() if indexes}
