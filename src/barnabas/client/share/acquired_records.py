"""Records that a share consumer has acquired, until the user has acknowledged them (KIP-932).

`AcquiredRecords` reads the records of one partition in a ShareFetch response batch by batch. The
response has whole record batches, and the offsets that the broker has acquired for this member.
Offsets without a record (control records, compacted records) are acknowledged as gaps. Corrupt
batches are rejected, and records that a deserializer refuses are released.

`ShareRecords` is the result of a poll. `InFlightRecords` has the records that the user has received
and not yet acknowledged, and those that are renewed.
"""

from __future__ import annotations

from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.client.errors import CorruptRecordsError, RecordDeserializationError
from barnabas.client.fetch.record_set import scan_records, span_records
from barnabas.client.share.acknowledgements import (
    GAP,
    Acknowledgements,
    AcknowledgeType,
    IllegalAcknowledgementError,
)
from barnabas.client.topic_partition import TopicPartition, as_partition
from barnabas.record.batch import CONTROL_FLAG, MAGIC_V2
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from barnabas.client.consumer.user_objects import Deserializing
    from barnabas.client.errors import ClientError
    from barnabas.client.fetch.record_set import BatchSpan

__all__ = [
    "AcquiredPart",
    "AcquiredRange",
    "AcquiredRecords",
    "Decoding",
    "InFlightRecords",
    "ShareRecord",
    "ShareRecords",
    "ShareSource",
]

_LENGTH = Struct(">i")
_LENGTH_START = 8
_LOG_OVERHEAD = 12
_OFFSET_MAX = 2**63 - 1


class ShareRecord(NamedTuple):
    """One acquired record: the fields of `ConsumerRecord`, and how often it was delivered."""

    topic: str
    partition: int
    offset: int
    # Milliseconds since 1970; `timestamp_type` is 0 for create time, 1 for log append time.
    timestamp: int
    timestamp_type: int
    # Bytes, None for null, or the return value of a deserializer.
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes | None]]
    # Number of deliveries including this one, to any member of the group: 1 for the first.
    delivery_count: int


class ShareRecords:
    """Records of one poll, partition by partition, in offset order within each partition.

    Args:
        parts: The records by partition.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: Mapping[TopicPartition, Sequence[ShareRecord]]) -> None:
        self._parts = {tp: tuple(part) for tp, part in parts.items() if part}

    def __len__(self) -> int:
        """Return the number of records in all partitions."""
        return sum(map(len, self._parts.values()))

    def __iter__(self) -> Iterator[ShareRecord]:
        """Iterate over the records of all partitions."""
        return chain.from_iterable(self._parts.values())

    def __getitem__(self, tp: tuple[str, int]) -> tuple[ShareRecord, ...]:
        """Return the records of one partition; empty if this poll has no records of it."""
        return self._parts.get(as_partition(tp), ())

    def __contains__(self, tp: object) -> bool:
        return tp in self._parts

    def __repr__(self) -> str:
        parts = ", ".join(f"{tp}: {len(part)}" for tp, part in self._parts.items())
        return f"ShareRecords({parts})"

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that have records in this poll."""
        return tuple(self._parts)

    def items(self) -> Iterator[tuple[TopicPartition, tuple[ShareRecord, ...]]]:
        """Iterate over pairs of a partition and its records."""
        return iter(self._parts.items())

    def of_topic(self, topic: str) -> Iterator[ShareRecord]:
        """Iterate over the records of all partitions of a topic."""
        return chain.from_iterable(p for tp, p in self._parts.items() if tp.topic == topic)


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
    """Options for decoding the bytes of records."""

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


class _Batch:
    """The records of one source."""

    __slots__ = ("acknowledged", "acks", "failed", "records", "renewed", "renewing")

    def __init__(self) -> None:
        # Records that the user has; removed by `take`, added again by `take_renewed`.
        self.records: dict[int, ShareRecord] = {}
        # Offsets of `records` that have a type in `acks`.
        self.acknowledged: set[int] = set()
        # Acknowledgements that were not sent yet; moved out by `take`.
        self.acks = Acknowledgements()
        # Ranges (first offset, end offset) that could not be read; their acknowledgement in `acks`
        # may be replaced until `take`.
        self.failed: list[tuple[int, int]] = []
        # Records whose renewal was requested, and those whose renewal has succeeded.
        self.renewing: dict[int, ShareRecord] = {}
        self.renewed: dict[int, ShareRecord] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.acks or self.renewing or self.renewed)


class InFlightRecords:
    """Acknowledgements wait here until `take` moves them into a request."""

    def __init__(self) -> None:
        self._batches: dict[ShareSource, _Batch] = {}

    def nodes(self) -> set[int]:
        """Return the brokers that have acquired records which the user still has."""
        return {source.node_id for source in self._batches}

    def add(self, source: ShareSource, part: AcquiredPart) -> None:
        """Add the records that a poll returns, or the failure that it raises."""
        batch = self._batches.setdefault(source, _Batch())
        batch.records.update((record.offset, record) for record in part.records)
        batch.acks.merge(part.acknowledgements)
        if part.error is not None:
            error = part.error
            end = getattr(error, "next_offset", error.offset + 1)
            batch.failed.append((error.offset, end))

    # Acknowledgements

    def acknowledge(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record that the user has, until `take` replacing an earlier type.

        Raises:
            IllegalAcknowledgementError: The record is not waiting to be acknowledged.
        """
        for source, batch in self._batches.items():
            if source.tp == tp and offset in batch.records:
                batch.acks.add(offset, kind)
                batch.acknowledged.add(offset)
                return
        raise _not_waiting(tp, offset)

    def acknowledge_offset(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record that the user has, or one that the last poll could not read.

        Raises:
            IllegalAcknowledgementError: There is no such record.
        """
        for source, batch in self._batches.items():
            if source.tp == tp and any(first <= offset < end for first, end in batch.failed):
                if kind is AcknowledgeType.RENEW:
                    raise IllegalAcknowledgementError(
                        f"{tp}: the record at offset {offset} could not be read and cannot be "
                        f"renewed: accept, release or reject it"
                    )
                batch.acks.add(offset, kind)
                return
        self.acknowledge(tp, offset, kind)

    def accept_all(self, unseen: Collection[ShareRecord] = ()) -> None:
        """Accept all records that have no type yet, except for those in `unseen`."""
        skipped = {(r.topic, r.partition, r.offset) for r in unseen}
        for source, batch in self._batches.items():
            for offset in batch.records:
                if offset not in batch.acknowledged and (*source.tp, offset) not in skipped:
                    batch.acks.add(offset, AcknowledgeType.ACCEPT)
                    batch.acknowledged.add(offset)

    @property
    def unacknowledged(self) -> int:
        """Number of records that the user has and has not acknowledged."""
        return sum(len(b.records) - len(b.acknowledged) for b in self._batches.values())

    def take(self) -> dict[ShareSource, Acknowledgements]:
        """Remove the acknowledged records; return their acknowledgements for the next requests."""
        found: dict[ShareSource, Acknowledgements] = {}
        for source, batch in list(self._batches.items()):
            if batch.acks:
                for offset in batch.acks.renewed:
                    batch.renewing[offset] = batch.records[offset]
                for offset in batch.acknowledged:
                    del batch.records[offset]
                found[source], batch.acks = batch.acks, Acknowledgements()
                batch.acknowledged = set()
            batch.failed = []
            if batch.is_empty:
                del self._batches[source]
        return found

    # Renewals

    def on_acknowledged(
        self, source: ShareSource, acks: Acknowledgements, error: ClientError | None
    ) -> None:
        """Handle the result of acknowledgements: renewed records may be returned again."""
        batch = self._batches.get(source)
        if batch is None:
            return
        for offset in acks.renewed:
            record = batch.renewing.pop(offset, None)
            if record is not None and error is None:
                batch.renewed[offset] = record
        if batch.is_empty:
            del self._batches[source]

    @property
    def is_renewing(self) -> bool:
        """Whether the result of a renewal is pending."""
        return any(batch.renewing for batch in self._batches.values())

    def take_renewed(self) -> ShareRecords:
        """Return the renewed records, which the user has to acknowledge again."""
        parts: dict[TopicPartition, list[ShareRecord]] = {}
        for source, batch in self._batches.items():
            if batch.renewed:
                renewed = [batch.renewed[offset] for offset in sorted(batch.renewed)]
                parts.setdefault(source.tp, []).extend(renewed)
                batch.records.update(batch.renewed)
                batch.renewed = {}
        return ShareRecords(parts)

    def clear(self) -> None:
        """Forget all records, because the share sessions end."""
        self._batches = {}


def _not_waiting(tp: TopicPartition, offset: int) -> IllegalAcknowledgementError:
    return IllegalAcknowledgementError(
        f"{tp}: the record at offset {offset} is not waiting to be acknowledged: it was not "
        f"returned by the last poll, or its acknowledgement was sent already"
    )
