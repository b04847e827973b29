"""A client's view of a topic, and the allowed states after a power loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Base sequence and values of a batch.
Batch = tuple[int, list[bytes]]


class ViolationError(AssertionError):
    """The broker has violated a guarantee."""


@dataclass
class TopicModel:
    """Partition 0 of one topic, written by one idempotent producer."""

    name: str
    # Whether all acknowledged records must survive a power loss.
    is_flushed: bool
    # Whether retention may delete records at the start.
    is_short: bool = False
    producer_id: int = -1
    next_sequence: int = 0
    # Offset -> value of each record that was acknowledged or read.
    values: dict[int, bytes] = field(default_factory=dict)
    # Batches without a response, which may be in the log.
    unknown: list[Batch] = field(default_factory=list)
    # Values of all batches that have ever been without a response.
    ever_unknown: set[bytes] = field(default_factory=set)
    # Lowest allowed log start offset after a clean stop.
    log_start_offset: int = 0
    # The last acknowledged batch: base offset and content.
    last: tuple[int, Batch] | None = None

    def acknowledged(self, base_offset: int, batch: Batch) -> None:
        """Record that the broker has acknowledged the batch at `base_offset`."""
        for offset, value in enumerate(batch[1], base_offset):
            known = self.values.get(offset)
            if known not in (None, value):
                raise ViolationError(f"{self.name}: offset {offset} was given twice")
            self.values[offset] = value
        self.last = (base_offset, batch)

    def check(self, found: Sequence[tuple[int, bytes]], span: tuple[int, int], synced: int) -> int:
        """Check the content of the topic after a restart of the broker.

        Args:
            found: offset and value of every record, in order.
            span: log start and log end offset.
            synced: the end of the records that were known to be synced, or acknowledged after a
            kill.

        Returns:
            The number of acknowledged records that the power loss removed.
        """
        start, end = span
        offsets = [offset for offset, _ in found]
        if offsets != list(range(start, end)):
            raise ViolationError(f"{self.name}: offsets {offsets[:5]}.. are not {start} to {end}")
        unknown = {value for _, values in self.unknown for value in values}
        for offset, value in found:
            known = self.values.get(offset)
            # Deleted records may come back, unless their deletion was synced.
            is_old = offset < self.log_start_offset and value in self.ever_unknown
            if known is None and value not in unknown and not is_old:
                raise ViolationError(f"{self.name}: {value[:12]!r} at {offset} was never sent")
            if known not in (None, value):
                raise ViolationError(f"{self.name}: offset {offset} has two values")
        seen = [value for _, value in found]
        if len(set(seen)) != len(seen):
            raise ViolationError(f"{self.name}: a record is there twice")
        lost = [offset for offset in self.values if offset >= end]
        self.ever_unknown |= unknown
        promised = [offset for offset in lost if offset < synced or self.is_flushed]
        if promised:
            raise ViolationError(f"{self.name}: acknowledged offset {min(promised)} is lost")
        if start > self.log_start_offset and not self.is_short:
            raise ViolationError(f"{self.name}: begins at {start}, not at {self.log_start_offset}")
        self.values = {offset: value for offset, value in self.values.items() if offset < end}
        self.values.update(found)
        self.unknown.clear()
        self.log_start_offset = start
        return len(lost)
