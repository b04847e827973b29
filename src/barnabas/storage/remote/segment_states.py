"""The copies of one partition's segments, as the metadata topic tells them (KIP-405).

Kafka's RemoteLogMetadataCache and RemoteLogLeaderEpochState. `RemoteLog` replays the events of a
partition. An event that does not follow from the state of its segment is dropped. So the first
event wins, and all brokers drop the same ones, because all read them in the same order.

For each leader epoch, some copies are *referenced*: lookups find them. Of two copies, the one with
more records of the epoch is referenced, and the earlier one if both have the same. Here Barnabas
is stricter than Kafka: a copy never hides offsets that only an earlier copy has. All other copies
are listed but not found: those that are being made or deleted, and those that others replace.

A broker may know a million segments. So a segment is kept as packed bytes, about 350 bytes with
its id and its place in the maps, and becomes a `RemoteSegment` when it is asked for.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from heapq import merge
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.protocol.records.remote_log import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    SegmentLeaderEpochEntry,
    TopicIdPartitionEntry,
)
from barnabas.storage.remote.remote_storage import OFFSET_MAX, RemoteSegment, SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.storage.topic_partition import TopicIdPartition

_STARTED = SegmentState.COPY_SEGMENT_STARTED
_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
_DELETING = SegmentState.DELETE_SEGMENT_STARTED
_DELETED = SegmentState.DELETE_SEGMENT_FINISHED

# States by their number in records.
_STATES = {int(state): state for state in SegmentState}

# The state of a segment -> the states of the next event. A repeated event is always allowed.
_FOLLOWING = {
    _STARTED: frozenset({_FINISHED, _DELETING}),
    _FINISHED: frozenset({_FINISHED, _DELETING}),
    _DELETING: frozenset({_DELETING, _DELETED}),
}


class Applied(NamedTuple):
    """The result of an event."""

    # The segment after the event; None if it is unknown.
    segment: RemoteSegment | None
    # Whether the event followed from the segment's state. If not, it was dropped.
    was_allowed: bool


class RemoteLog:
    """The segments of one partition in the remote tier."""

    __slots__ = ("_epochs", "_packed", "_where", "count", "finished_bytes")

    def __init__(self, where: TopicIdPartition) -> None:
        self._where = where
        # Packed segment by id. Has each segment whose deletion is not finished.
        self._packed: dict[bytes, bytes] = {}
        # By leader epoch. An epoch stays when its last segment is deleted, for its highest offset.
        self._epochs: dict[int, _EpochSegments] = {}
        # Number of segments in any state.
        self.count = 0
        # Bytes of the segments in the state COPY_SEGMENT_FINISHED.
        self.finished_bytes = 0

    def apply(
        self, record: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord
    ) -> Applied:
        """Replay an event of this partition. Events with impossible values are dropped too."""
        if isinstance(record, RemoteLogSegmentMetadataRecord):
            return self._start(record)
        return self._update(record)

    def segment(self, segment_id: bytes) -> RemoteSegment | None:
        """Return a segment in any state; None if it is unknown or its deletion is finished."""
        packed = self._packed.get(segment_id)
        return None if packed is None else _unpacked(self._where, segment_id, packed)

    def segment_at(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the referenced segment with the record of this epoch at this offset."""
        of_epoch = self._epochs.get(epoch)
        segment_id = None if of_epoch is None else of_epoch.floor(offset)
        if segment_id is None or self._last_offset(segment_id, epoch) < offset:
            return None
        return self.segment(segment_id)

    def next_with_transactions(self, epoch: int, offset: int) -> RemoteSegment | None:
        """Return the first referenced segment of an epoch that may have aborted transactions.

        Args:
            epoch: the leader epoch.
            offset: the segment has this offset, or begins after it.
        """
        of_epoch = self._epochs.get(epoch)
        if of_epoch is None:
            return None
        found = self.segment_at(epoch, offset)
        if found is not None and found.has_transactions:
            return found
        segment_id = of_epoch.next_with_transactions(offset)
        return None if segment_id is None else self.segment(segment_id)

    def segments(self, epoch: int | None = None) -> list[RemoteSegment]:
        """Return the segments in all states, of one epoch or of all, by start offset.

        It takes 2 us per segment; `iterate` is for callers that work in slices.
        """
        found = list(self.iterate(epoch))
        if epoch is None:
            found.sort(key=attrgetter("start_offset", "id"))
        return found

    def iterate(self, epoch: int | None = None) -> Iterator[RemoteSegment]:
        """Yield the segments of an epoch by start offset, or all segments in any order.

        Events may be applied meanwhile: new segments are not yielded, nor deleted ones.
        """
        ids: Iterable[bytes]
        if epoch is None:
            ids = list(self._packed)
        else:
            of_epoch = self._epochs.get(epoch)
            ids = () if of_epoch is None else self._ordered(of_epoch)
        for segment_id in ids:
            segment = self.segment(segment_id)
            if segment is not None:
                yield segment

    def _ordered(self, of_epoch: _EpochSegments) -> Iterator[bytes]:
        """Yield the ids of an epoch's copies by start offset; the first ones cost little."""
        # Packed segments sort by their start offsets. A deleted one may come at any place.
        packed = self._packed

        def order(segment_id: bytes) -> bytes:
            return packed.get(segment_id, b"")

        return merge(of_epoch.referenced(), sorted(of_epoch.unreferenced, key=order), key=order)

    def highest_offset(self, epoch: int) -> int | None:
        """Return the highest offset of an epoch that was ever copied; None if there is none."""
        of_epoch = self._epochs.get(epoch)
        return None if of_epoch is None or of_epoch.highest < 0 else of_epoch.highest

    # Events.

    def _start(self, record: RemoteLogSegmentMetadataRecord) -> Applied:
        before = self.segment(record.remote_log_segment_id.id)
        if record.remote_log_segment_state != _STARTED:
            return Applied(before, False)
        if before is not None:
            return Applied(before, before.state is _STARTED)
        segment = _started_segment(self._where, record)
        if segment is None:
            return Applied(None, False)
        self._packed[segment.id] = _pack(segment)
        self.count += 1
        for epoch, _, _ in _epoch_ranges(segment):
            of_epoch = self._epochs.get(epoch)
            if of_epoch is None:
                of_epoch = self._epochs[epoch] = _EpochSegments()
            of_epoch.unreferenced.add(segment.id)
        return Applied(segment, True)

    def _update(self, record: RemoteLogSegmentMetadataUpdateRecord) -> Applied:
        before = self.segment(record.remote_log_segment_id.id)
        state = _STATES.get(record.remote_log_segment_state)
        if before is None or state is None or state not in _FOLLOWING[before.state]:
            return Applied(before, False)
        custom = record.custom_metadata
        segment = msgspec.structs.replace(
            before,
            broker_id=record.broker_id,
            event_ms=record.event_timestamp_ms,
            # Barnabas keeps the custom metadata for the deletion, in which Kafka repeats it.
            custom=before.custom if custom is None else bytes(custom),
            state=state,
        )
        if state is _DELETED:
            self._forget(segment)
        else:
            self._packed[segment.id] = _pack(segment)
            if state is not before.state:
                self._move(segment, was_finished=before.state is _FINISHED)
        return Applied(segment, True)

    def _move(self, segment: RemoteSegment, *, was_finished: bool) -> None:
        """Reference a finished copy, or stop to reference one that is deleted."""
        if segment.state is _FINISHED:
            self.finished_bytes += segment.size
        elif was_finished:
            self.finished_bytes -= segment.size
        for epoch, start, last in _epoch_ranges(segment):
            of_epoch = self._epochs[epoch]
            if segment.state is _FINISHED:
                self._reference(of_epoch, epoch, segment, (start, last))
            else:
                of_epoch.remove(start, segment.id)

    def _reference(
        self, of_epoch: _EpochSegments, epoch: int, segment: RemoteSegment, of: tuple[int, int]
    ) -> None:
        """Reference a copy, unless another one has its records of the epoch.

        Args:
            of_epoch: the segments of the epoch.
            epoch: the leader epoch.
            segment: the copy.
            of: its first and its last offset of that epoch.
        """
        start, last = of
        earlier = of_epoch.floor(start)
        if earlier is not None and self._last_offset(earlier, epoch) >= last:
            return
        # Copies whose records of the epoch are all in this one.
        while (later := of_epoch.ceiling(start)) is not None:
            if self._last_offset(later[1], epoch) > last:
                break
            of_epoch.remove(*later)
        of_epoch.add(start, segment.id, has_transactions=segment.has_transactions)
        of_epoch.highest = max(of_epoch.highest, last)

    def _forget(self, segment: RemoteSegment) -> None:
        del self._packed[segment.id]
        self.count -= 1
        for epoch, _, _ in _epoch_ranges(segment):
            self._epochs[epoch].unreferenced.discard(segment.id)

    def _last_offset(self, segment_id: bytes, epoch: int) -> int:
        """Return the last offset of an epoch in a segment that has records of it."""
        return _last_offset(self._packed[segment_id], epoch)


class _EpochSegments:
    """The copies with records of one leader epoch.

    Invariant: no referenced copy has all records of another one. So the first offsets of the
    referenced copies ascend strictly, and their last offsets too.
    """

    __slots__ = ("_ids", "_starts", "_transactional", "highest", "unreferenced")

    def __init__(self) -> None:
        # First offset of the epoch in each referenced copy, ascending, and the ids of the copies.
        self._starts: list[int] = []
        self._ids: list[bytes] = []
        # Of these, the first offsets of the copies with aborted transactions.
        self._transactional: list[int] = []
        self.unreferenced: set[bytes] = set()
        # The highest offset of a copy that is or was referenced; -1 before the first. It never
        # falls.
        self.highest = -1

    def floor(self, offset: int) -> bytes | None:
        """Return the last referenced copy that begins at or below an offset."""
        slot = bisect_right(self._starts, offset)
        return self._ids[slot - 1] if slot else None

    def ceiling(self, offset: int) -> tuple[int, bytes] | None:
        """Return start and id of the first referenced copy that begins at or above an offset."""
        slot = bisect_left(self._starts, offset)
        return (self._starts[slot], self._ids[slot]) if slot < len(self._ids) else None

    def next_with_transactions(self, offset: int) -> bytes | None:
        """Return the first referenced copy with transactions that begins above an offset."""
        slot = bisect_right(self._transactional, offset)
        return self.floor(self._transactional[slot]) if slot < len(self._transactional) else None

    def add(self, start: int, segment_id: bytes, *, has_transactions: bool) -> None:
        """Reference a copy."""
        slot = bisect_left(self._starts, start)
        self._starts.insert(slot, start)
        self._ids.insert(slot, segment_id)
        if has_transactions:
            self._transactional.insert(bisect_left(self._transactional, start), start)
        self.unreferenced.discard(segment_id)

    def remove(self, start: int, segment_id: bytes) -> None:
        """Stop to reference a copy; no effect if it is not referenced."""
        slot = bisect_left(self._starts, start)
        if slot < len(self._ids) and self._ids[slot] == segment_id:
            del self._starts[slot], self._ids[slot]
            marked = bisect_left(self._transactional, start)
            if marked < len(self._transactional) and self._transactional[marked] == start:
                del self._transactional[marked]
        self.unreferenced.add(segment_id)

    def referenced(self) -> list[bytes]:
        """Return the ids of the referenced copies, by start offset."""
        return self._ids.copy()


# Segments as bytes: the fixed fields, the leader epochs, and the custom metadata to the end.

# Start and end offset, largest timestamp, time of the event, size, broker, number of leader epochs,
# state, flags. The start offset is never negative and comes first, so that the bytes sort by it.
_FIXED = struct.Struct(">qqqqqiIBB")
_EPOCH = struct.Struct(">iq")
_HAS_TRANSACTIONS = 1
_HAS_CUSTOM = 2


def _pack(segment: RemoteSegment) -> bytes:
    flags = _HAS_TRANSACTIONS if segment.has_transactions else 0
    if segment.custom is not None:
        flags |= _HAS_CUSTOM
    fixed = _FIXED.pack(
        segment.start_offset,
        segment.end_offset,
        segment.max_timestamp,
        segment.event_ms,
        segment.size,
        segment.broker_id,
        len(segment.leader_epochs),
        segment.state,
        flags,
    )
    epochs = [_EPOCH.pack(*each) for each in segment.leader_epochs]
    return b"".join((fixed, *epochs, segment.custom or b""))


def _unpacked(where: TopicIdPartition, segment_id: bytes, packed: bytes) -> RemoteSegment:
    start, end, max_timestamp, event_ms, size, broker_id, epochs, state, flags = _FIXED.unpack_from(
        packed
    )
    rest = _FIXED.size + epochs * _EPOCH.size
    return RemoteSegment(
        topic=where.topic,
        topic_id=where.topic_id,
        partition=where.partition,
        id=segment_id,
        start_offset=start,
        end_offset=end,
        size=size,
        max_timestamp=max_timestamp,
        leader_epochs=tuple(_EPOCH.iter_unpack(packed[_FIXED.size : rest])),
        has_transactions=bool(flags & _HAS_TRANSACTIONS),
        broker_id=broker_id,
        event_ms=event_ms,
        state=_STATES[state],
        custom=packed[rest:] if flags & _HAS_CUSTOM else None,
    )


def _last_offset(packed: bytes, epoch: int) -> int:
    """Return the last offset of an epoch in a segment that has records of it."""
    end: int
    _, end, _, _, _, _, epochs, _, _ = _FIXED.unpack_from(packed)
    if epochs == 1:
        return end
    rest = packed[_FIXED.size : _FIXED.size + epochs * _EPOCH.size]
    return min((at - 1 for each, at in _EPOCH.iter_unpack(rest) if each > epoch), default=end)


def _epoch_ranges(segment: RemoteSegment) -> Iterator[tuple[int, int, int]]:
    """Yield each epoch with records in the segment, and its first and last offset there."""
    last_epoch, last_start = segment.leader_epochs[-1]
    for (epoch, start), (_, following) in pairwise(segment.leader_epochs):
        if following > start:
            yield epoch, start, following - 1
    yield last_epoch, last_start, segment.end_offset


# Events as records.


def _started_segment(
    where: TopicIdPartition, record: RemoteLogSegmentMetadataRecord
) -> RemoteSegment | None:
    """Return the segment of an event; None if its values are impossible."""
    epochs = tuple((each.leader_epoch, each.offset) for each in record.segment_leader_epochs)
    is_ascending = all(
        before[0] < after[0] and before[1] <= after[1] for before, after in pairwise(epochs)
    )
    if (
        not 0 <= record.start_offset <= record.end_offset <= OFFSET_MAX
        or record.segment_size_in_bytes < 0
        or not epochs
        or not is_ascending
        or not 0 <= epochs[0][1] <= epochs[-1][1] <= record.end_offset
    ):
        return None
    custom = record.custom_metadata
    return RemoteSegment(
        topic=where.topic,
        topic_id=where.topic_id,
        partition=where.partition,
        id=bytes(record.remote_log_segment_id.id),
        start_offset=record.start_offset,
        end_offset=record.end_offset,
        size=record.segment_size_in_bytes,
        max_timestamp=record.max_timestamp_ms,
        leader_epochs=epochs,
        has_transactions=not record.txn_index_empty,
        broker_id=record.broker_id,
        event_ms=record.event_timestamp_ms,
        state=_STARTED,
        custom=None if custom is None else bytes(custom),
    )


def started_record(segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    """Return the event with which the copy of a segment begins."""
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=_id_entry(segment),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp,
        event_timestamp_ms=segment.event_ms,
        segment_leader_epochs=[
            SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset)
            for epoch, offset in segment.leader_epochs
        ],
        segment_size_in_bytes=segment.size,
        custom_metadata=segment.custom,
        remote_log_segment_state=_STARTED,
        txn_index_empty=not segment.has_transactions,
    )


def update_record(segment: RemoteSegment) -> RemoteLogSegmentMetadataUpdateRecord:
    """Return the event that gives a started segment its state, its broker and its custom metadata.

    Args:
        segment: the segment as it is after the event.
    """
    return RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=_id_entry(segment),
        broker_id=segment.broker_id,
        event_timestamp_ms=segment.event_ms,
        custom_metadata=segment.custom,
        remote_log_segment_state=segment.state,
    )


def _id_entry(segment: RemoteSegment) -> RemoteLogSegmentIdEntry:
    return RemoteLogSegmentIdEntry(
        topic_id_partition=TopicIdPartitionEntry(
            name=segment.topic, id=segment.topic_id, partition=segment.partition
        ),
        id=segment.id,
    )
