"""The records of one partition that one ShareFetch response acquired, read batch by batch.

The response has whole record batches, and the offsets that the broker has acquired for this member.
Offsets without a record (control records, compacted records) are acknowledged as gaps. Corrupt
batches are rejected, and records that a deserializer refuses are released.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import CorruptRecordsError, RecordDeserializationError
from barnabas.client.fetch.record_decoding import span_records
from barnabas.client.fetch.record_set import scan_records
from barnabas.client.share.acknowledge_type import GAP, AcknowledgeType
from barnabas.client.share.acknowledgements import Acknowledgements
from barnabas.client.share.share_records import ShareRecord
from barnabas.record.batch import CONTROL_FLAG, MAGIC_V2
from barnabas.record.errors import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.client.consumer.user_objects import Deserializing
    from barnabas.client.fetch.record_set import BatchSpan
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["AcquiredPart", "AcquiredRange", "AcquiredRecords", "Decoding", "ShareSource"]

_LENGTH = Struct(">i")
_LENGTH_START = 8
_LOG_OVERHEAD = 12
_OFFSET_MAX = 2**63 - 1


class ShareSource(NamedTuple):
    """The partition and the leader that acquired records: acknowledgements go to that leader."""

    node_id: int
    topic_id: bytes
    tp: TopicPartition


class AcquiredRange(NamedTuple):
    """Offsets that the broker has acquired for this member."""

    first_offset: int
    # Inclusive.
    last_offset: int
    delivery_count: int


class Decoding(NamedTuple):
    """How the bytes of records become records."""

    deserializing: Deserializing
    check_crcs: bool


class AcquiredPart(NamedTuple):
    """The records of one batch, or an error at which reading stopped for a moment."""

    records: list[ShareRecord]
    # Acknowledgements that the client makes itself: gaps, and records that cannot be read.
    acknowledgements: Acknowledgements
    # Raised by the poll that reaches this part; None in parts with records.
    error: CorruptRecordsError | RecordDeserializationError | None = None


class AcquiredRecords:
    """Reads the acquired records of one partition in one response.

    Args:
        source: The partition, and the broker that sent the response.
        data: The record batches of the response.
        ranges: The acquired offsets, as received.
        decoding: CRC checks and deserializers.
    """

    __slots__ = ("_decoding", "_index", "_next", "_parts", "_peeked", "_ranges", "source")

    def __init__(
        self,
        source: ShareSource,
        data: bytes,
        ranges: Iterable[AcquiredRange],
        decoding: Decoding,
    ) -> None:
        self.source = source
        self._decoding = decoding
        self._ranges = _valid_ranges(ranges)
        # The first acquired offset that was neither returned nor acknowledged is at least `_next`,
        # and lies in the range at `_index` or in a later one. They only grow.
        self._index = 0
        self._next = 0
        self._parts = self._read(data)
        # The next part, if `peek` has read it already.
        self._peeked: AcquiredPart | None = None

    def peek(self) -> AcquiredPart | None:
        """Return the next part without taking it; None at the end."""
        if self._peeked is None:
            self._peeked = next(self._parts, None)
        return self._peeked

    def take(self) -> None:
        """Take the part that `peek` returned."""
        self._peeked = None

    def release(self) -> Acknowledgements:
        """Return acknowledgements that release everything that was not taken."""
        acks = Acknowledgements()
        if self._peeked is not None:
            acks.merge(self._peeked.acknowledgements)
            for record in self._peeked.records:
                acks.add(record.offset, AcknowledgeType.RELEASE)
            self._peeked = None
        self._parts = iter(())
        self._skip_to(_OFFSET_MAX, AcknowledgeType.RELEASE, acks)
        return acks

    # Reading

    def _read(self, data: bytes) -> Iterator[AcquiredPart]:
        while True:
            scan = scan_records(data, check_crcs=self._decoding.check_crcs)
            for span in scan.batches:
                yield from self._read_batch(data, span)
            if scan.invalid is None:
                break
            yield from self._reject(
                scan.invalid.offset, scan.invalid.next_offset, scan.invalid.reason
            )
            (length,) = _LENGTH.unpack_from(data, scan.length + _LENGTH_START)
            if length <= 0:
                break
            data = data[scan.length + _LOG_OVERHEAD + length :]
        # Offsets behind complete batches have no record. Behind an incomplete batch they may have
        # one, which the next delivery returns.
        is_whole = scan.invalid is None and scan.length == len(data)
        acks = Acknowledgements()
        self._skip_to(_OFFSET_MAX, GAP if is_whole else AcknowledgeType.RELEASE, acks)
        if acks:
            yield AcquiredPart([], acks)

    def _read_batch(self, data: bytes, span: BatchSpan) -> Iterator[AcquiredPart]:
        is_v2 = span.magic == MAGIC_V2
        if is_v2 and (span.attributes & CONTROL_FLAG or not self._overlaps(span)):
            # The acquired offsets in it become gaps as soon as a later offset is read.
            return
        try:
            records = span_records(data, span)
        except CorruptBatchError as error:
            yield from self._reject(span.base_offset, span.next_offset, str(error))
            return
        found: list[ShareRecord] = []
        acks = Acknowledgements()
        tp = self.source.tp
        for r in records:
            count = self._acquire(r.offset, acks)
            if count is None:
                continue
            try:
                key, value = self._decoding.deserializing.apply_one(tp, r.offset, r.key, r.value)
            except RecordDeserializationError as error:
                if found or acks:
                    yield AcquiredPart(found, acks)
                failed = Acknowledgements()
                failed.add(r.offset, AcknowledgeType.RELEASE)
                yield AcquiredPart([], failed, error)
                found, acks = [], Acknowledgements()
                continue
            found.append(
                ShareRecord(
                    *tp, r.offset, r.timestamp, r.timestamp_type, key, value, r.headers, count
                )
            )
        if found or acks:
            yield AcquiredPart(found, acks)

    def _overlaps(self, span: BatchSpan) -> bool:
        """Return whether an acquired offset that is still to be read lies in the batch."""
        acquired = (
            max(self._next, each.first_offset)
            for each in self._ranges[self._index :]
            if each.last_offset >= span.base_offset and each.last_offset >= self._next
        )
        return next(acquired, _OFFSET_MAX) < span.next_offset

    def _reject(self, first: int, end: int, reason: str) -> Iterator[AcquiredPart]:
        """Yield the error of a corrupt batch, if any of its offsets was acquired."""
        gaps, rejected = Acknowledgements(), Acknowledgements()
        self._skip_to(first, GAP, gaps)
        self._skip_to(end, AcknowledgeType.REJECT, rejected)
        if gaps:
            yield AcquiredPart([], gaps)
        if rejected:
            error = CorruptRecordsError(self.source.tp, first, reason, end)
            yield AcquiredPart([], rejected, error)

    # The acquired offsets

    def _acquire(self, offset: int, acks: Acknowledgements) -> int | None:
        """Move behind `offset`; return its delivery count, or None if it was not acquired."""
        self._skip_to(offset, GAP, acks)
        if self._index == len(self._ranges) or self._next > offset:
            return None
        current = self._ranges[self._index]
        if current.first_offset > offset:
            return None
        self._next = offset + 1
        return current.delivery_count

    def _skip_to(self, offset: int, kind: int, acks: Acknowledgements) -> None:
        """Acknowledge all acquired offsets from the current one to `offset` (exclusive)."""
        while self._index < len(self._ranges):
            first, last, _ = self._ranges[self._index]
            first = max(first, self._next)
            if first < offset and first <= last:
                acks.add_range(first, min(last, offset - 1), kind)
            if last >= offset:
                break
            self._index += 1
        self._next = max(self._next, offset)


def _valid_ranges(ranges: Iterable[AcquiredRange]) -> list[AcquiredRange]:
    """Return the ranges without those that are empty or overlap an earlier one."""
    found: list[AcquiredRange] = []
    next_offset = 0
    for each in sorted(ranges):
        if next_offset <= each.first_offset <= each.last_offset < _OFFSET_MAX:
            found.append(each)
            next_offset = each.last_offset + 1
    return found
