"""The topic metadata that the group coordinator uses."""

from __future__ import annotations

from typing import Protocol


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
