"""Committed, pending and staged offsets by group.

An offset is pending while its record is above the high watermark, and staged while its record
belongs to an open transaction. Only committed offsets are visible to reads.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.protocol.record_frame import decode_coordinator_value
from barnabas.protocol.records.classic_groups import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# The version with an expiry time, for old clients that set a retention time.
_VERSION_WITH_EXPIRY = 1
# Version of Kafka 4.4, with the topic id as a tagged field.
_VERSION = 4


class CommittedOffset(msgspec.Struct, frozen=True):
    """A group's committed offset for one partition."""

    offset: int
    # Epoch of the last consumed record, or -1 if the client did not send it.
    leader_epoch: int
    metadata: str
    # Wall-clock time in ms.
    commit_timestamp: int
    # Expiry time (wall clock, ms). -1: the broker's retention applies.
    expire_timestamp: int = -1
    # Zero if the offset was committed before topics had ids.
    topic_id: bytes = ZERO_UUID

    @classmethod
    def decode(cls, value: bytes) -> CommittedOffset:
        """Decode the value of a record. Raises ProtocolError."""
        record = decode_coordinator_value(OffsetCommitValue, value)
        return cls(
            record.offset,
            record.leader_epoch,
            record.metadata,
            record.commit_timestamp,
            record.expire_timestamp,
            record.topic_id,
        )

    def to_record(self, group_id: str, topic: str, partition: int) -> CoordinatorRecord:
        """Return the record that commits the offset."""
        has_expiry = self.expire_timestamp >= 0
        value = OffsetCommitValue(
            offset=self.offset,
            leader_epoch=-1 if has_expiry else self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_timestamp,
            expire_timestamp=self.expire_timestamp,
            topic_id=ZERO_UUID if has_expiry else self.topic_id,
        )
        key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
        return CoordinatorRecord.of(key, value, _VERSION_WITH_EXPIRY if has_expiry else _VERSION)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the record that removes a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord.of(key, None)


# Topic and partition index.
PartitionKey = tuple[str, int]
# Group and partition.
_GroupPartition = tuple[str, PartitionKey]

_NO_OFFSETS: dict[PartitionKey, CommittedOffset] = {}
_NO_PRODUCERS: dict[PartitionKey, Counter[int]] = {}
_NOTHING_STAGED: dict[PartitionKey, list[CommittedOffset]] = {}


class OffsetStore:
    """Offsets of all groups of one state partition."""

    __slots__ = ("_by_group", "_ended", "_open", "_pending", "_pending_of", "_undecided")

    def __init__(self) -> None:
        # Committed offsets: no failover can revert them. Groups without offsets have no entry.
        self._by_group: dict[str, dict[PartitionKey, CommittedOffset]] = {}
        # Replayed but uncommitted changes: offset of the record, and group. `_add_pending` appends,
        # `commit` removes. Invariant: ascending by offset.
        self._pending: deque[tuple[int, str]] = deque()
        # The same changes by group: partition, and value or None. No entry is empty.
        self._pending_of: dict[str, deque[tuple[PartitionKey, CommittedOffset | None]]] = {}
        # Offsets of open transactions by producer id: (offset of the record, value).
        # `put_transactional` adds them, `end_transaction` and tombstones remove them. The value is
        # None if a later record has committed another offset for the partition.
        self._open: dict[int, dict[_GroupPartition, tuple[int, CommittedOffset | None]]] = {}
        # Partitions whose staged offset an uncommitted marker or tombstone has removed: (offset of
        # the marker or tombstone, producer id, partitions). `end_transaction` and `put` append,
        # `commit` removes. Invariant: ascending by offset.
        self._ended: deque[tuple[int, int, frozenset[_GroupPartition]]] = deque()
        # Transactions that may change an offset: by group, partition and producer id, how many of
        # them are in `_open` or `_ended`. No entry is empty.
        self._undecided: dict[str, dict[PartitionKey, Counter[int]]] = {}

    def put(
        self, offset: int, group_id: str, key: PartitionKey, value: CommittedOffset | None
    ) -> None:
        """Set the partition's offset by the record at `offset`.

        None as `value` removes the offset and all staged offsets of the partition, since compaction
        removes their records: they have the same key as the tombstone.
        """
        assert not self._pending or self._pending[-1][0] < offset, (
            f"StateFollowsLog: group={group_id} partition={key} record_offset={offset} "
            f"last_replayed={self._pending[-1][0]}"
        )
        self._add_pending(offset, (group_id, key), value)
        if value is not None:
            self._supersede((group_id, key), offset)
        else:
            self._discard_staged(offset, (group_id, key))

    def _add_pending(
        self, offset: int, group_partition: _GroupPartition, value: CommittedOffset | None
    ) -> None:
        group_id, key = group_partition
        self._pending.append((offset, group_id))
        changes = self._pending_of.get(group_id)
        if changes is None:
            changes = self._pending_of[group_id] = deque()
        changes.append((key, value))

    def put_transactional(
        self,
        offset: int,
        producer_id: int,
        group_partition: _GroupPartition,
        value: CommittedOffset,
    ) -> None:
        """Keep the offset until the producer's transaction ends.

        Args:
            offset: the offset of the record.
            producer_id: the producer of the transaction.
            group_partition: group and partition.
            value: the offset to commit.
        """
        offsets = self._open.setdefault(producer_id, {})
        if group_partition not in offsets:
            group_id, key = group_partition
            counts = self._undecided.setdefault(group_id, {}).setdefault(key, Counter())
            counts[producer_id] += 1
        offsets[group_partition] = (offset, value)

    def end_transaction(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Set (commit) or discard (abort) the offsets of a producer's open transaction.

        Args:
            offset: the offset of the marker.
            producer_id: the producer of the transaction.
            is_commit: whether the transaction is committed.
        """
        ended = self._open.pop(producer_id, {})
        if ended:
            self._ended.append((offset, producer_id, frozenset(ended)))
        if not is_commit:
            return
        for group_partition, (record_offset, value) in ended.items():
            if value is not None:
                self._add_pending(offset, group_partition, value)
                self._supersede(group_partition, record_offset)

    def _supersede(self, group_partition: _GroupPartition, offset: int) -> None:
        """Discard offsets of open transactions for the partition in records before `offset`."""
        group_id, key = group_partition
        for producer_id in self._undecided.get(group_id, _NO_PRODUCERS).get(key, ()):
            offsets = self._open.get(producer_id, {})
            held = offsets.get(group_partition)
            if held is not None and held[0] < offset:
                offsets[group_partition] = (held[0], None)

    def _discard_staged(self, offset: int, group_partition: _GroupPartition) -> None:
        """Discard the staged offsets of a partition, by the tombstone at `offset`."""
        group_id, key = group_partition
        for producer_id in self._undecided.get(group_id, _NO_PRODUCERS).get(key, ()):
            offsets = self._open.get(producer_id, {})
            if offsets.pop(group_partition, None) is None:
                continue
            if not offsets:
                del self._open[producer_id]
            self._ended.append((offset, producer_id, frozenset({group_partition})))

    def staged(self, group_id: str) -> Mapping[PartitionKey, list[CommittedOffset]]:
        """Return the offsets of open transactions by partition.

        The list is empty if later records have committed other offsets for the partition.
        """
        undecided = self._undecided.get(group_id)
        if undecided is None:
            return _NOTHING_STAGED
        found: dict[PartitionKey, list[CommittedOffset]] = {}
        for key, producers in undecided.items():
            for producer_id in producers:
                held = self._open.get(producer_id, {}).get((group_id, key))
                if held is None:
                    continue
                values = found.setdefault(key, [])
                if held[1] is not None:
                    values.append(held[1])
        return found

    def unstable(self, group_id: str) -> frozenset[PartitionKey]:
        """Return the partitions whose offset an undecided transaction may change (KIP-447).

        A transaction is decided when its marker, or a tombstone for the partition, is committed.
        Until then, `offsets` returns the offset from before the transaction.
        """
        return frozenset(self._undecided.get(group_id, ()))

    def commit(self, end_offset: int) -> None:
        """Apply all pending offsets of records below `end_offset`."""
        while self._ended and self._ended[0][0] < end_offset:
            self._decide(*self._ended.popleft()[1:])
        pending = self._pending
        while pending and pending[0][0] < end_offset:
            group_id = pending.popleft()[1]
            changes = self._pending_of[group_id]
            key, value = changes.popleft()
            if not changes:
                del self._pending_of[group_id]
            if value is not None:
                self._by_group.setdefault(group_id, {})[key] = value
                continue
            offsets = self._by_group.get(group_id)
            if offsets is not None:
                offsets.pop(key, None)
                if not offsets:
                    del self._by_group[group_id]

    def _decide(self, producer_id: int, group_partitions: frozenset[_GroupPartition]) -> None:
        """Forget partitions of a transaction whose marker or tombstone is committed."""
        for group_id, key in group_partitions:
            by_partition = self._undecided[group_id]
            counts = by_partition[key]
            counts[producer_id] -= 1
            if not counts[producer_id]:
                del counts[producer_id]
            if not counts:
                del by_partition[key]
            if not by_partition:
                del self._undecided[group_id]

    def items(self) -> Iterator[tuple[str, PartitionKey, CommittedOffset]]:
        """Yield group, partition and committed offset of each.

        The store may change during iteration.
        """
        for group_id, offsets in list(self._by_group.items()):
            for key, value in list(offsets.items()):
                yield group_id, key, value

    def offsets(self, group_id: str) -> Mapping[PartitionKey, CommittedOffset]:
        """Return the committed offsets of a group. The caller must not change them."""
        return self._by_group.get(group_id, _NO_OFFSETS)

    def latest(self, group_id: str) -> Mapping[PartitionKey, CommittedOffset]:
        """Return the offsets of a group including pending ones, in contrast to `offsets`."""
        offsets = self._by_group.get(group_id, _NO_OFFSETS)
        changes = self._pending_of.get(group_id)
        if changes is None:
            return offsets
        latest = dict(offsets)
        for key, value in changes:
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
        return latest

    def count(self) -> int:
        """Return the number of committed offsets."""
        return sum(map(len, self._by_group.values()))

    def group_ids(self) -> list[str]:
        """Return the groups that have offsets."""
        return list(self._by_group)
