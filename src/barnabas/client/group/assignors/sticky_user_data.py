"""The user data of members under the sticky assignor (versions 0 and 1)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas.client.group.assignors.claims import Claim
from barnabas.client.topic_partition import TopicPartition, numbers_by_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_sticky_user_data", "sticky_user_data"]

_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")


def sticky_user_data(claim: Claim) -> bytes:
    """Serialize topics with their partitions, followed by the generation."""
    topics = numbers_by_topic(claim.partitions)
    chunks = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        chunks += [_INT16.pack(len(name)), name, _INT32.pack(len(numbers))]
        chunks += [_INT32.pack(number) for number in numbers]
    return b"".join([*chunks, _INT32.pack(claim.generation_id)])


def read_sticky_user_data(data: bytes | None) -> Claim:
    """Parse a member's user data; like Kafka, treat malformed bytes as an empty claim."""
    if not data:
        return Claim(())
    try:
        fields = _Fields(data)
        partitions = list(fields.partitions())
        return Claim(partitions, fields.generation_id())
    except (struct.error, UnicodeDecodeError):
        return Claim(())


class _Fields:
    """Reads the fields one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def partitions(self) -> Iterator[TopicPartition]:
        for _ in range(self._next(_INT32)):
            size = self._next(_INT16)
            topic = self._data[self._position : self._position + size].decode()
            self._position += size
            for _ in range(self._next(_INT32)):
                yield TopicPartition(topic, self._next(_INT32))

    def generation_id(self) -> int:
        """Return the generation; -1 in version 0, which does not contain it."""
        rest = len(self._data) - self._position
        return self._next(_INT32) if rest >= _INT32.size else -1

    def _next(self, kind: struct.Struct) -> int:
        value: int = kind.unpack_from(self._data, self._position)[0]
        self._position += kind.size
        return value
