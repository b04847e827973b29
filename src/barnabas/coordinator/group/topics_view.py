"""What the group coordinator needs of the metadata: names, ids and sizes of topics."""

from __future__ import annotations

from typing import Protocol


class TopicsView(Protocol):
    """What of the metadata is needed here."""

    def topic_id(self, name: str) -> bytes | None:
        """Id of a topic, None if it does not exist."""
        ...

    def topic_name(self, topic_id: bytes) -> str | None:
        """Name of a topic, None if it does not exist."""
        ...

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the topic has that partition."""
        ...

    def partition_count(self, name: str) -> int:
        """How many partitions the topic has; 0 if it does not exist."""
        ...
