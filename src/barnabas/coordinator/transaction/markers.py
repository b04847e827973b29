"""The markers that end one transaction, and the interface that sends them to partition leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.storage.topic_partition import TopicPartition


class Markers(msgspec.Struct, frozen=True):
    """The markers that end one transaction."""

    transactional_id: str
    # The partition of __transaction_state that has the id, and its leader epoch.
    coordinator_partition: int
    coordinator_epoch: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    # Version of the client's transactions: 0, 1 or 2.
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


class MarkerSender(Protocol):
    """Sends markers to the leaders of partitions until each partition has its marker."""

    def send(
        self,
        markers: Markers,
        on_written: Callable[[TopicPartition], None],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Send the markers.

        Args:
            markers: the markers.
            on_written: called for each partition that has its marker or no longer exists.
            on_done: called once: with NONE when each partition has its marker or no longer exists,
                else with the error that ends the attempt, such as NOT_COORDINATOR.
        """
        ...

    def forget(self, coordinator_partition: int) -> None:
        """Drop the markers of a state partition that this broker no longer leads.

        `on_done` is not called for them.
        """
        ...
