"""The name of a partition as users of the client write it (Kafka's TopicPartition)."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

__all__ = ["K", "TopicPartition"]

# A TopicPartition or a plain (topic, partition): mappings of either are taken.
K = TypeVar("K", bound=tuple[str, int])


class TopicPartition(NamedTuple):
    """A topic and a partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
