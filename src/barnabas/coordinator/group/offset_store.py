"""Committed offsets by group: what readers may see, and what is not committed yet.

An offset is not committed as long as its record is above the high watermark, or belongs to an open
transaction.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from barnabas.coordinator.group.committed_offset import CommittedOffset

# Topic and partition index.
PartitionKey = tuple[str, int]
# Group and partition.
_Place = tuple[str, PartitionKey]

_NO_OFFSETS: dict[PartitionKey, CommittedOffset] = {}


class OffsetStore:
    """Offsets of all groups of one state partition."""

    __slots__ = ("_by_group", "_open", "_pending")

    def __init__(self) -> None:
        # Below the high watermark: nothing can take it back. Groups without offsets are not kept.
        self._by_group: dict[str, dict[PartitionKey, CommittedOffset]] = {}
        # Replayed, not committed: (offset of the record, group, partition, value or None).
        self._pending: deque[tuple[int, str, PartitionKey, CommittedOffset | None]] = deque()
        # Of open transactions, by producer id: (offset of the record, value). `put_transactional`
        # adds them, `end_transaction` takes them away. None instead of the value: a later record
        # has committed another offset for that partition.
        self._open: dict[int, dict[_Place, tuple[int, CommittedOffset | None]]] = {}

    def put(
        self, offset: int, group_id: str, key: PartitionKey, value: CommittedOffset | None
    ) -> None:
        """Set the partition's offset by the record at `offset`, or (None) remove it."""
        assert not self._pending or self._pending[-1][0] < offset
        self._pending.append((offset, group_id, key, value))
        if value is not None:
            self._supersede((group_id, key), offset)

    def put_transactional(
        self, offset: int, producer_id: int, place: _Place, value: CommittedOffset
    ) -> None:
        """Keep the offset until the producer's transaction ends.

        Args:
            offset: of the record.
            place: group and partition.
        """
        self._open.setdefault(producer_id, {})[place] = (offset, value)

    def end_transaction(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Set (commit) or drop (abort) the offsets of a producer's open transaction.

        Args:
            offset: of the marker.
        """
        ended = self._open.pop(producer_id, {})
        if not is_commit:
            return
        for place, (record_offset, value) in ended.items():
            if value is not None:
                self._pending.append((offset, *place, value))
                self._supersede(place, record_offset)

    def _supersede(self, place: _Place, offset: int) -> None:
        """Drop what open transactions hold for the place in records before `offset`."""
        for offsets in self._open.values():
            held = offsets.get(place)
            if held is not None and held[0] < offset:
                offsets[place] = (held[0], None)

    def unstable(self, group_id: str) -> AbstractSet[PartitionKey]:
        """Return the partitions for which a transaction is open (KIP-447)."""
        return {key for offsets in self._open.values() for of, key in offsets if of == group_id}

    def commit(self, end_offset: int) -> None:
        """All records below `end_offset` are committed."""
        pending = self._pending
        while pending and pending[0][0] < end_offset:
            _, group_id, key, value = pending.popleft()
            if value is not None:
                self._by_group.setdefault(group_id, {})[key] = value
                continue
            offsets = self._by_group.get(group_id)
            if offsets is not None:
                offsets.pop(key, None)
                if not offsets:
                    del self._by_group[group_id]

    def items(self) -> Iterator[tuple[str, PartitionKey, CommittedOffset]]:
        """Yield group, partition and committed offset of each; the store may change meanwhile."""
        for group_id, offsets in list(self._by_group.items()):
            for key, value in list(offsets.items()):
                yield group_id, key, value

    def offsets(self, group_id: str) -> Mapping[PartitionKey, CommittedOffset]:
        """All of a group's, which must not be changed."""
        return self._by_group.get(group_id, _NO_OFFSETS)

    def latest(self, group_id: str) -> Mapping[PartitionKey, CommittedOffset]:
        """As `offsets`, with what is on its way: what the next record comes after."""
        offsets = self._by_group.get(group_id, _NO_OFFSETS)
        if not self._pending:
            return offsets
        latest = dict(offsets)
        for _, of_group, key, value in self._pending:
            if of_group != group_id:
                continue
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
        return latest

    def count(self) -> int:
        """How many offsets are committed."""
        return sum(map(len, self._by_group.values()))

    def group_ids(self) -> list[str]:
        """Groups that have offsets."""
        return list(self._by_group)
