"""What replicas need of the remote tier: the metadata of segments, and reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.records.remote_log import (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
    )
    from barnabas.replication.partition.partition import Partition
    from barnabas.runtime.clock import Cancellable
    from barnabas.storage.remote.remote_reader import Miss
    from barnabas.storage.remote.segment_states import Applied, RemoteLog
    from barnabas.storage.results import FetchIsolation, ReadResult
    from barnabas.storage.topic_partition import TopicIdPartition
    from barnabas.waiting.steps import OffLoop

    SegmentRecord = RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord


class RemoteMetadata(Protocol):
    """The metadata topic as seen by replicas. All calls are made on the loop."""

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Read the metadata of more partitions."""

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Forget the metadata of partitions."""

    def log_of(self, where: TopicIdPartition) -> RemoteLog | None:
        """Return the segments of a partition; None until all earlier events are known."""

    def on_ready(self, where: TopicIdPartition, call: Callable[[], None]) -> None:
        """Call back once `log_of` answers; at once if it does."""

    def publish(
        self,
        where: TopicIdPartition,
        record: SegmentRecord,
        on_done: Callable[[Applied | ErrorCode], None],
    ) -> None:
        """Write an event, and call back when it was read again, or with the error."""


class RemoteTier(Protocol):
    """Reads of the remote tier. All calls are made on the loop, and none blocks."""

    def read(
        self,
        partition: Partition,
        offset: int,
        limit: tuple[int, bool],
        isolation: FetchIsolation,
    ) -> ReadResult | Miss | ErrorCode:
        """Return records from an offset, what must be loaded first, or the error.

        Args:
            limit: bytes at most, and whether the first batch is returned even if it is larger.
        """

    def load(self, miss: Miss, on_done: Callable[[ErrorCode], None]) -> Cancellable:
        """Load what a read missed."""

    def offset_for_timestamp(
        self, partition: Partition, timestamp: int
    ) -> Generator[Miss | OffLoop | None, Any, tuple[int, int, int] | None]:
        """Search in steps for the first record at or after a time: (timestamp, offset, epoch).

        A `Miss` must be loaded before the next step, an `OffLoop` runs elsewhere, None is a pause.
        """
