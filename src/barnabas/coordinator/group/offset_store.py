"""Committed offsets by group: what readers may see, and what waits for its commit."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.committed_offset import CommittedOffset

# Topic and partition index.
PartitionKey = tuple[str, int]

_NO_OFFSETS: dict[PartitionKey, CommittedOffset] = {}


class OffsetStore:
    """Offsets of all groups of one state partition."""

    __slots__ = ("_by_group", "_pending")

    def __init__(self) -> None:
        # Below the high watermark: nothing can take it back. Groups without offsets are not kept.
        self._by_group: dict[str, dict[PartitionKey, CommittedOffset]] = {}
        # Replayed, not committed: (offset of the record, group, partition, value or None).
        self._pending: deque[tuple[int, str, PartitionKey, CommittedOffset | None]] = deque()

    def put(
        self, offset: int, group_id: str, key: PartitionKey, value: CommittedOffset | None
    ) -> None:
        """A record at `offset` sets the partition's offset, or (None) removes it."""
        assert not self._pending or self._pending[-1][0] < offset
        self._pending.append((offset, group_id, key, value))

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
