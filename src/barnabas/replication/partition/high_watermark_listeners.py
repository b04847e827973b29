"""Listeners to the high watermarks of single partitions (Kafka's PartitionListener)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition_registry import PartitionRegistry
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class HighWatermarkListeners:
    """Calls one listener per partition when the partition's high watermark has moved.

    The caller checks a partition after each change of it, never during the change.
    """

    __slots__ = ("_listeners", "_registry", "_reported")

    def __init__(self, registry: PartitionRegistry) -> None:
        self._registry = registry
        self._listeners: dict[TopicPartition, Callable[[], None]] = {}
        # The high watermark at the last call of each listener. Same keys as `_listeners`.
        self._reported: dict[TopicPartition, int] = {}

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition has a listener."""
        return topic_partition in self._listeners

    def __len__(self) -> int:
        """Return the number of listeners."""
        return len(self._listeners)

    def add(self, topic_partition: TopicPartition, on_moved: Callable[[], None]) -> None:
        """Call `on_moved` after each move of the high watermark, until `remove`.

        The partition may be offline; then the calls begin when it is online again.
        """
        assert topic_partition not in self._listeners, f"{topic_partition} has a listener"
        self._listeners[topic_partition] = on_moved
        found = self._registry.partition(topic_partition)
        self._reported[topic_partition] = (
            -1 if isinstance(found, ErrorCode) else found.log.high_watermark
        )

    def remove(self, topic_partition: TopicPartition) -> None:
        """Remove the partition's listener. Without a listener, do nothing."""
        self._listeners.pop(topic_partition, None)
        self._reported.pop(topic_partition, None)

    def check(self, topic_partition: TopicPartition) -> None:
        """Call the partition's listener if the high watermark has moved since its last call."""
        listener = self._listeners.get(topic_partition)
        if listener is None:
            return
        found = self._registry.partition(topic_partition)
        if isinstance(found, ErrorCode):
            return
        high_watermark = found.log.high_watermark
        if high_watermark == self._reported[topic_partition]:
            return
        self._reported[topic_partition] = high_watermark
        try:
            listener()
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the caller serves another request
            _log.exception(
                "Unexpected error in a listener to a high watermark: partition=%s", topic_partition
            )
