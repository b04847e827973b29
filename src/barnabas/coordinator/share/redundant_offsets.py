"""Finds the records of a state partition that later snapshots replace (KIP-932).

Kafka's ShareCoordinatorOffsetsManager. The log below the oldest last snapshot is not needed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.coordinator.share.share_partition_key import SharePartitionKey


class RedundantOffsets:
    """The offset of the last snapshot of each share partition of one state partition."""

    __slots__ = ("_snapshots", "end_offset")

    def __init__(self) -> None:
        # Offset of the last snapshot by share partition. Ascending, since `note` appends.
        self._snapshots: OrderedDict[SharePartitionKey, int] = OrderedDict()
        # Records below this offset are redundant. Moved by `note`; never decreases.
        self.end_offset = 0

    def note(self, key: SharePartitionKey, offset: int, *, is_tombstone: bool) -> None:
        """Note a snapshot or tombstone. Offsets increase from call to call."""
        self._snapshots[key] = offset
        self._snapshots.move_to_end(key)
        oldest = next(iter(self._snapshots.values()))
        assert oldest >= self.end_offset, f"oldest={oldest} end_offset={self.end_offset}"
        self.end_offset = oldest
        if is_tombstone:
            del self._snapshots[key]
