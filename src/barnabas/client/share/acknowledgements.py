"""Acknowledgements of records that a share consumer has acquired, and their results.

The results are for `commit_sync`, and for the user's callback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.client.consumer.errors import ConcurrentUseError
from barnabas.client.errors import ClientError, ClientTimeoutError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "GAP",
    "AckBatch",
    "AcknowledgeType",
    "AcknowledgementCallback",
    "AcknowledgementResults",
    "Acknowledgements",
    "IllegalAcknowledgementError",
    "ShareCommit",
]

# Acknowledges offsets without a record: removed by compaction, or control records. Only the client
# itself uses it.
GAP = 0
# A run of at least this many equal types becomes a separate batch (18 bytes). A shorter run takes
# fewer bytes inside a batch with one byte for each record.
_LONG_RUN = 18
# Called with the offsets of acknowledged records by partition, and their error or None.
AcknowledgementCallback: TypeAlias = Callable[
    [Mapping[TopicPartition, frozenset[int]], "ClientError | None"], object
]


class AcknowledgeType(IntEnum):
    """The result of processing a record; the values are those of the protocol."""

    # The record was processed.
    ACCEPT = 1
    # The record was not processed: deliver it again, to any member of the group.
    RELEASE = 2
    # The record cannot be processed: do not deliver it again.
    REJECT = 3
    # The record is still being processed: extend its acquisition lock (KIP-1222).
    RENEW = 4


class IllegalAcknowledgementError(ClientError, RuntimeError):
    """A call does not fit the state of the acquired records (Java's IllegalStateException).

    For example, the record is not waiting for its acknowledgement, a poll begins while records are
    unacknowledged in explicit mode, or a record is acknowledged in implicit mode.
    """


class AckBatch(NamedTuple):
    """Consecutive offsets: `types` has one element for all of them, or one for each."""

    first_offset: int
    # Inclusive.
    last_offset: int
    types: tuple[int, ...]


class Acknowledgements:
    """Types by offset, and ranges of offsets with one type.

    Ranges are for gaps and for corrupt batches: a broker may report ranges of any length, so the
    offsets in them are never enumerated.
    """

    __slots__ = ("_ranges", "_types")

    def __init__(self) -> None:
        # Types of single records by offset; the last call of `add` wins.
        self._types: dict[int, int] = {}
        # (first offset, last offset, type); they overlap neither each other nor `_types`.
        self._ranges: list[tuple[int, int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._types or self._ranges)

    @property
    def offsets(self) -> frozenset[int]:
        """Offsets of the acknowledged records; gaps and corrupt batches are not included."""
        return frozenset(self._types)

    @property
    def renewed(self) -> list[int]:
        """Offsets with type RENEW."""
        return [o for o, kind in self._types.items() if kind == AcknowledgeType.RENEW]

    @property
    def has_renewals(self) -> bool:
        """Whether a record has type RENEW."""
        return AcknowledgeType.RENEW in self._types.values()

    def add(self, offset: int, kind: int) -> None:
        """Acknowledge one record; replace an earlier acknowledgement that was not sent yet."""
        for index, (first, last, range_kind) in enumerate(self._ranges):
            if first <= offset <= last:
                parts = [(first, offset - 1, range_kind), (offset + 1, last, range_kind)]
                self._ranges[index : index + 1] = [part for part in parts if part[0] <= part[1]]
                break
        self._types[offset] = kind

    def add_range(self, first: int, last: int, kind: int) -> None:
        """Acknowledge all offsets from `first` to `last` (inclusive)."""
        assert first <= last, (first, last)
        self._ranges.append((first, last, kind))

    def merge(self, other: Acknowledgements) -> None:
        """Add all acknowledgements of `other`."""
        self._types.update(other._types)
        self._ranges += other._ranges

    def batches(self) -> list[AckBatch]:
        """Return the batches of a request, in offset order and without overlaps."""
        found: list[AckBatch] = []
        # Adjacent short runs, which become one batch with a type for each offset.
        first = 0
        types: list[int] = []
        for start, last, kind in self._runs():
            size = last - start + 1
            if types and start == first + len(types) and size < _LONG_RUN:
                types += [kind] * size
                continue
            _append(found, first, types)
            types = []
            if size < _LONG_RUN:
                first, types = start, [kind] * size
            else:
                found.append(AckBatch(start, last, (kind,)))
        _append(found, first, types)
        return found

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield the longest runs of consecutive offsets with the same type, in offset order."""
        singles = [(offset, offset, kind) for offset, kind in self._types.items()]
        run: tuple[int, int, int] | None = None
        for first, last, kind in sorted(singles + self._ranges):
            if run is not None and run[1] + 1 == first and run[2] == kind:
                run = (run[0], last, kind)
                continue
            if run is not None:
                yield run
            run = (first, last, kind)
        if run is not None:
            yield run


def _append(found: list[AckBatch], first: int, types: list[int]) -> None:
    if types:
        kinds = (types[0],) if len(set(types)) == 1 else tuple(types)
        found.append(AckBatch(first, first + len(types) - 1, kinds))


class ShareCommit:
    """Acknowledgements that one call of `commit_sync` waits for."""

    __slots__ = ("_results", "_waiting")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        # Number of pending results by partition: a partition may have moved between brokers.
        self._waiting: dict[TopicPartition, int] = {}
        for tp in partitions:
            self._waiting[tp] = self._waiting.get(tp, 0) + 1
        self._results: dict[TopicPartition, ClientError | None] = {}

    @property
    def is_done(self) -> bool:
        """Whether the results of all partitions are known."""
        return not self._waiting

    def on_result(self, tp: TopicPartition, error: ClientError | None) -> None:
        """Store a result; an error of a partition stays."""
        self._results[tp] = self._results.get(tp) or error
        left = self._waiting.pop(tp) - 1
        if left:
            self._waiting[tp] = left

    def results(self, timeout_ms: float) -> dict[TopicPartition, ClientError | None]:
        """Return the result of each partition; a timeout error where it is not known yet."""
        late = {
            tp: ClientTimeoutError(f"acknowledgements of {tp} took longer than {timeout_ms:.0f} ms")
            for tp in self._waiting
        }
        return {**self._results, **late}


class AcknowledgementResults:
    """Results for the user's callback, which runs only inside calls of the user."""

    __slots__ = ("_completed", "_is_inside", "callback")

    def __init__(self) -> None:
        # Set by the user; None without a callback.
        self.callback: AcknowledgementCallback | None = None
        self._completed: deque[tuple[TopicPartition, frozenset[int], ClientError | None]] = deque()
        self._is_inside = False

    def add(self, tp: TopicPartition, offsets: frozenset[int], error: ClientError | None) -> None:
        """Queue a result for the next `run`."""
        if self.callback is not None and offsets:
            self._completed.append((tp, offsets, error))

    def check_outside(self) -> None:
        """Refuse calls of the consumer that the callback makes.

        Raises:
            ConcurrentUseError: The callback is running.
        """
        if self._is_inside:
            raise ConcurrentUseError(
                "the acknowledgement commit callback may not call the consumer, except for wakeup()"
            )

    def run(self) -> None:
        """Pass all queued results to the callback.

        Raises:
            BaseException: The callback raised this exception; later results stay queued.
        """
        while self._completed:
            tp, offsets, error = self._completed.popleft()
            if self.callback is None:
                continue
            self._is_inside = True
            try:
                self.callback({tp: offsets}, error)
            finally:
                self._is_inside = False
