"""Acquisition of fetched records by a member of a share group (KIP-932, KIP-1206).

A read of the log returns record batches. Their offsets become acquired ranges, without the records
of aborted transactions if the group reads committed records only.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from barnabas.record.batch import HEADER, HEADER_SIZE, ControlType, made_header
from barnabas.runtime.disk import FileSlice
from barnabas.server.share.records.in_flight_records import InFlightBatch
from barnabas.server.share.records.record_states import RecordState
from barnabas.storage.producers.producer_entry import read_end_marker
from barnabas.storage.segment.batch_scan import headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.record.batch import BatchHeader
    from barnabas.server.share.group_settings import ShareLimits
    from barnabas.server.share.records.in_flight_records import InFlightRecords
    from barnabas.server.share.records.record_states import RecordRun
    from barnabas.storage.results import AbortedTransaction


# Further batches of a read are not acquired. Each takes a microsecond.
BATCHES_MAX = 10_000


def scan(
    records: FileSlice | bytes | memoryview, last_needed: int, batches_max: int = BATCHES_MAX
) -> list[FetchedBatch]:
    """Return the whole batches of a read up to an offset, since each costs a read of its header.

    Args:
        records: the result of the read.
        last_needed: the last offset of interest. The batch with this offset is the last one.
        batches_max: maximum number of batches.

    Raises:
        DamagedLogError: a header in the file is invalid.
        CorruptRecordError: a marker in the file is invalid.
    """
    found: list[FetchedBatch] = []
    for header, is_abort in _batches(records):
        if len(found) == batches_max:
            break
        found.append(
            FetchedBatch(
                header.base_offset,
                header.last_offset,
                header.producer_id,
                header.is_transactional,
                is_abort,
                header.size,
            )
        )
        if header.last_offset >= last_needed:
            break
    return found


def cut(
    records: FileSlice | bytes | memoryview,
    batches: Sequence[FetchedBatch],
    first: int,
    last: int,
) -> FileSlice | bytes | memoryview:
    """Return the record batches with the offsets from `first` to `last`.

    Args:
        records: the result of the read.
        batches: its batches.
        first: the first acquired offset.
        last: the last acquired offset.
    """
    begin = max(0, bisect_right(batches, first, key=_first_of) - 1)
    end = bisect_right(batches, last, key=_first_of)
    start = sum(each.size for each in batches[:begin])
    size = sum(each.size for each in batches[begin:end])
    if isinstance(records, FileSlice):
        return FileSlice(records.file, records.position + start, size)
    return records[start : start + size]


def _first_of(batch: FetchedBatch) -> int:
    return batch.first


def _batches(records: FileSlice | bytes | memoryview) -> Iterator[tuple[BatchHeader, bool]]:
    if isinstance(records, FileSlice):
        end = records.position + records.length
        for position, header in headers(records.file, records.position, end):
            is_abort = header.is_control and _is_abort(
                records.file.read_at(header.size, position), header
            )
            yield header, is_abort
        return
    position = 0
    while len(records) - position >= HEADER_SIZE:
        header = made_header(HEADER.unpack_from(records, position))
        if header.size > len(records) - position:
            return
        batch = records[position : position + header.size]
        yield header, header.is_control and _is_abort(batch, header)
        position += header.size


def _is_abort(batch: bytes | memoryview, header: BatchHeader) -> bool:
    marker = read_end_marker(batch, header)
    return marker is not None and marker.control_type is ControlType.ABORT


# Acquire modes of ShareFetch.
BATCH_OPTIMIZED = 0
RECORD_LIMIT = 1

# Below this number of deliveries, records are never delivered in smaller portions.
_THROTTLED_DELIVERIES_MIN = 2
# With a lower limit of deliveries, records of the last delivery are not delivered alone.
_ISOLATING_LIMIT_MIN = 3


class FetchedBatch(msgspec.Struct, frozen=True):
    """One record batch of the log."""

    # Offsets of the first and the last record.
    first: int
    last: int
    # -1 without a producer id.
    producer_id: int = -1
    is_transactional: bool = False
    # Whether the batch is the control batch that aborts a transaction.
    is_abort_marker: bool = False
    # Size in the log, bytes.
    size: int = 0


class AcquireRequest(msgspec.Struct, frozen=True):
    """Limits and owner of an acquisition."""

    member_id: str
    acquire_mode: int
    # Number of records in an acquired batch; soft, since record batches are not divided.
    batch_size: int
    # Maximum number of records; soft unless the mode is RECORD_LIMIT.
    records_max: int
    # Where the log was read.
    fetch_offset: int
    # When the acquisition locks time out, ms of the monotonic clock.
    lock_ends_ms: float


class AcquiredRange(msgspec.Struct):
    """Consecutive offsets that a member has acquired, both inclusive."""

    first: int
    last: int
    delivery_count: int


class Acquisition:
    """One acquisition of the records that a read of the log has returned."""

    __slots__ = (
        "_batches",
        "_count",
        "_is_record_limit",
        "_last",
        "_limits",
        "_max",
        "_records",
        "_request",
        "acquired",
    )

    def __init__(
        self,
        records: InFlightRecords,
        request: AcquireRequest,
        batches: Sequence[FetchedBatch],
        limits: ShareLimits,
    ) -> None:
        self._records = records
        self._request = request
        # The record batches of the read, in order.
        self._batches = batches
        self._limits = limits
        self._is_record_limit = request.acquire_mode == RECORD_LIMIT
        # Last offset that may be acquired, and the number of records that may be acquired.
        self._last, self._max = _bounds(records, request, batches, limits)
        # Number of acquired records.
        self._count = 0
        self.acquired: list[AcquiredRange] = []

    def run(self) -> list[AcquiredRange]:
        """Acquire and return the acquired offsets, in order."""
        if self._max <= 0:
            return []
        records, first = self._records, self._batches[0].first
        records.archive_compacted(self._request.fetch_offset, first)
        base = self._base_offset(first)
        known = records.between(base, self._last)
        if not known:
            self._acquire_new(base, self._last)
            return self.acquired
        if self._acquire_known(known, base) and self._count < self._max:
            last_known = known[-1].last
            if last_known < self._last:
                self._acquire_new(last_known + 1, self._last)
        if self.acquired:
            records.shrink_gap_window(self.acquired[-1].last + 1)
        return self.acquired

    def _base_offset(self, first: int) -> int:
        """Return where acquisition begins: at the batch with the first offset if there is one.

        After a leader change, the start offset and the first batch in flight may be inside the
        first record batch. That batch may even begin below the start offset.
        """
        floor = self._records.floor(first)
        if floor is None:
            first = max(first, self._records.start_offset)
            floor = self._records.floor(first)
        return floor.first if floor is not None and floor.last >= first else first

    # Records that were acquired before.

    def _acquire_known(self, known: list[InFlightBatch], gap_start: int) -> bool:
        """Acquire available records of known batches, and gaps that are fetched again.

        Args:
            known: the batches, in order.
            gap_start: where a gap before the first of them begins.

        Returns:
            Whether further records may be acquired: False if deliveries are throttled.
        """
        first = self._batches[0].first
        for batch in known:
            if self._count >= self._max:
                break
            if self._records.is_gap_window_active:
                if gap_start < batch.first:
                    self._acquire_new(gap_start, batch.first - 1)
                gap_start = batch.last + 1
                if self._count >= self._max:
                    break
            is_throttled = needs_throttling(batch, first, self._last, self._limits)
            if is_throttled and self._count > 0:
                return False
            if self._must_track_offsets(batch, is_throttled):
                if not batch.is_by_offset and not batch.whole.can_be_acquired:
                    continue
                acquired = self._acquire_offsets(batch)
                if is_throttled and acquired:
                    return False
            elif batch.whole.can_be_acquired:
                self._acquire_whole(batch)
        return True

    def _must_track_offsets(self, batch: InFlightBatch, is_throttled: bool) -> bool:
        """Whether the batch cannot be acquired as a whole."""
        return (
            batch.is_by_offset
            or is_throttled
            or not batch.is_within(self._batches[0].first, self._last)
            or (self._is_record_limit and len(batch) > self._max - self._count)
        )

    def _acquire_whole(self, batch: InFlightBatch) -> None:
        run = batch.whole
        run.acquire(self._request.member_id, self._request.lock_ends_ms)
        self.acquired.append(AcquiredRange(run.first, run.last, run.delivery_count))
        self._count += len(run)

    def _acquire_offsets(self, batch: InFlightBatch) -> int:
        """Acquire available offsets of a batch and return their number."""
        found: list[AcquiredRange] = []
        portion = _Portion(len(batch), self._max - self._count, self._limits)
        for run in batch.runs_in(self._batches[0].first, self._last):
            if not run.can_be_acquired:
                continue
            taken = portion.take(run, self._is_record_limit)
            if not taken:
                break
            if taken < len(run):
                batch.runs_in(run.first + taken, run.last)
            run.acquire(self._request.member_id, self._request.lock_ends_ms)
            _append(found, run)
            if portion.is_complete:
                break
        self.acquired += found
        self._count += portion.count
        return portion.count

    # Records that are acquired for the first time.

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire offsets without a batch, in whole record batches if possible."""
        records, allowed = self._records, self._max - self._count
        if not records.batches and records.end_offset > first:
            first = records.end_offset
        if allowed < last - first + 1:
            whole = _end_of_record_batch(self._batches, first + allowed - 1)
            last = min(whole, last) if records.is_gap_window_active else whole
        # After a leader change, batches in flight may begin inside a record batch.
        last = records.free_until(first, last)
        if first > last:
            return
        acquired = self._create_batches(first, last, allowed)
        if records.batches[0].first == first:
            records.start_offset = first
        records.end_offset = max(records.end_offset, last)
        if self._is_record_limit:
            last = acquired[0].last
        records.shrink_gap_window(last + 1)
        self.acquired += acquired
        self._count += last - first + 1

    def _create_batches(self, first: int, last: int, allowed: int) -> list[AcquiredRange]:
        """Add acquired batches of about the requested size, divided between record batches."""
        batch_size = max(1, self._request.batch_size)
        acquired: list[AcquiredRange] = []
        if not self._is_record_limit and last - first + 1 > batch_size:
            for each in self._batches:
                if each.first > last:
                    break
                if each.first - first >= batch_size:
                    acquired.append(AcquiredRange(first, each.first - 1, 1))
                    first = each.first
        acquired.append(AcquiredRange(first, last, 1))
        for each_range in acquired:
            self._add(each_range.first, each_range.last)
        if self._is_record_limit and last - first + 1 > allowed:
            self._leave_available(acquired[0], allowed)
        return acquired

    def _add(self, first: int, last: int) -> None:
        batch = InFlightBatch(first, last, RecordState.AVAILABLE, 0, "")
        batch.whole.acquire(self._request.member_id, self._request.lock_ends_ms)
        self._records.add(batch)

    def _leave_available(self, acquired: AcquiredRange, allowed: int) -> None:
        """Make the records above a record limit available, at their first delivery."""
        batch = self._records.floor(acquired.first)
        assert batch is not None, "the batch was added"
        acquired.last = acquired.first + allowed - 1
        for run in batch.runs_in(acquired.last + 1, batch.last):
            run.time_out(RecordState.AVAILABLE)
            run.delivery_count = 0
        self._records.has_available = True


class _Portion:
    """The number of offsets of one batch that may be acquired at once.

    Records near the limit of deliveries are delivered in smaller and smaller portions, the last
    time alone. So a record that cannot be processed does not archive other records.
    """

    __slots__ = ("_allowed", "_limits", "_size", "_throttled_max", "count", "is_complete")

    def __init__(self, size: int, allowed: int, limits: ShareLimits) -> None:
        self._size = size
        self._allowed = allowed
        self._limits = limits
        # Limit by the number of deliveries, set by the first throttled record.
        self._throttled_max: int | None = None
        self.count = 0
        self.is_complete = False

    def take(self, run: RecordRun, is_record_limit: bool) -> int:
        """Return how many offsets at the beginning of the run belong to the portion."""
        limit, deliveries = self._limits.delivery_count_limit, run.delivery_count
        is_last_delivery = limit >= _ISOLATING_LIMIT_MIN and deliveries == limit - 1
        if is_last_delivery and self.count > 0:
            return 0
        threshold = throttled_deliveries(limit)
        if deliveries >= threshold and self._throttled_max is None:
            self._throttled_max = max(1, self._size >> (deliveries - threshold + 1))
        taken = len(run)
        if is_last_delivery:
            taken = 1
        elif is_record_limit:
            taken = min(taken, self._allowed - self.count)
        if self._throttled_max is not None and self.count < self._throttled_max:
            taken = min(taken, self._throttled_max - self.count)
        self.count += taken
        self.is_complete = (
            is_last_delivery
            or (is_record_limit and self.count == self._allowed)
            or self.count == self._throttled_max
        )
        return taken


def _append(found: list[AcquiredRange], run: RecordRun) -> None:
    """Append acquired offsets, in one range with equal ones directly before them."""
    last = found[-1] if found else None
    if (
        last is not None
        and last.last + 1 == run.first
        and last.delivery_count == run.delivery_count
    ):
        last.last = run.last
    else:
        found.append(AcquiredRange(run.first, run.last, run.delivery_count))


def throttled_deliveries(delivery_count_limit: int) -> int:
    """Return the number of deliveries after which records are delivered in smaller portions."""
    return max(_THROTTLED_DELIVERIES_MIN, (delivery_count_limit + 1) // 2)


def needs_throttling(batch: InFlightBatch, first: int, last: int, limits: ShareLimits) -> bool:
    """Whether a batch has records in the range that were delivered too often."""
    threshold = throttled_deliveries(limits.delivery_count_limit)
    if not batch.is_by_offset:
        return batch.whole.delivery_count >= threshold
    return any(
        run.state is RecordState.AVAILABLE and run.delivery_count >= threshold
        for run in batch.runs
        if run.last >= first and run.first <= last
    )


def _bounds(
    records: InFlightRecords,
    request: AcquireRequest,
    batches: Sequence[FetchedBatch],
    limits: ShareLimits,
) -> tuple[int, int]:
    """Return the last offset that may be acquired, and the number of records.

    At the limit of in-flight records, only records that are in flight already may be acquired.
    """
    if not batches or request.records_max <= 0:
        return -1, 0
    last = batches[-1].last
    allowed = min(request.records_max, limits.record_locks_max - records.in_flight_count)
    if allowed <= 0 and request.fetch_offset <= records.end_offset:
        allowed = min(request.records_max, records.end_offset - request.fetch_offset + 1)
        last = min(last, records.end_offset)
    return last, allowed


def _end_of_record_batch(batches: Sequence[FetchedBatch], offset: int) -> int:
    """Return the last offset of the record batch with the offset, else the offset."""
    for each in reversed(batches):
        if each.first <= offset:
            return max(offset, each.last)
    return offset


def aborted_ranges(
    batches: Iterable[FetchedBatch], aborted: Iterable[AbortedTransaction]
) -> list[tuple[int, int]]:
    """Return first and last offset of each record batch of an aborted transaction.

    A transaction of a producer ends with the abort marker of this producer.
    """
    pending = [(each.first_offset, each.producer_id) for each in aborted]
    heapq.heapify(pending)
    open_producers: set[int] = set()
    found: list[tuple[int, int]] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while pending and pending[0][0] <= batch.last:
            open_producers.add(heapq.heappop(pending)[1])
        if batch.is_abort_marker:
            open_producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in open_producers:
            found.append((batch.first, batch.last))
    return found


def without_ranges(
    acquired: Sequence[AcquiredRange], removed: Sequence[tuple[int, int]]
) -> list[AcquiredRange]:
    """Return the acquired offsets that are in no removed range. Both are in order."""
    left: list[AcquiredRange] = []
    index = 0
    for each in acquired:
        first = each.first
        while index < len(removed) and removed[index][1] < first:
            index += 1
        at = index
        while at < len(removed) and removed[at][0] <= each.last:
            if first < removed[at][0]:
                left.append(AcquiredRange(first, removed[at][0] - 1, each.delivery_count))
            first = removed[at][1] + 1
            at += 1
        if first <= each.last:
            left.append(AcquiredRange(first, each.last, each.delivery_count))
    return left
