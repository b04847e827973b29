"""Remote segments that could not be read because an object of the store is missing or damaged.

A segment is forgotten when it is read successfully or deleted, and ten minutes after the latest
failure: perhaps nothing reads it any more. Other failures pass, and a counter shows them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.clock import Clock
    from barnabas.storage.remote.remote_storage import RemoteSegment

# Segments that are remembered. The one that failed first is forgotten for a new one.
SEGMENTS_MAX = 1_000
# Time after which a failure is forgotten.
REMEMBERED_MS = 600_000.0


class UnreadableSegment(NamedTuple):
    """A segment whose records cannot be read."""

    partition: TopicPartition
    start_offset: int
    # Inclusive.
    end_offset: int
    # MISSING or DAMAGED.
    kind: CopyCause
    # Time of the latest failure (monotonic, ms).
    failed_ms: float


class UnreadableSegments:
    """The segments that this broker could not read when it tried last."""

    __slots__ = ("_clock", "_found")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By the id of the segment, the one with the oldest failure is first.
        self._found: OrderedDict[bytes, UnreadableSegment] = OrderedDict()

    def __iter__(self) -> Iterator[UnreadableSegment]:
        found, oldest_ms = self._found, self._clock.monotonic_ms() - REMEMBERED_MS
        while found and next(iter(found.values())).failed_ms < oldest_ms:
            found.popitem(last=False)
        return iter(found.values())

    def add(self, segment: RemoteSegment, kind: CopyCause) -> None:
        """Remember a segment, if it is missing or damaged."""
        if kind not in (CopyCause.MISSING, CopyCause.DAMAGED):
            return
        found = self._found
        if segment.id not in found and len(found) >= SEGMENTS_MAX:
            found.popitem(last=False)
        found[segment.id] = UnreadableSegment(
            TopicPartition(segment.topic, segment.partition),
            segment.start_offset,
            segment.end_offset,
            kind,
            self._clock.monotonic_ms(),
        )
        found.move_to_end(segment.id)

    def discard(self, segment_id: bytes) -> None:
        """Forget a segment: it was read, or is deleted."""
        self._found.pop(segment_id, None)
