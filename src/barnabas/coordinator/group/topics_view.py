"""The topic metadata that the group coordinator uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


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
