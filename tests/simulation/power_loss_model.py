"""A client's knowledge of a topic that loses power, and the states it may find later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# A producer's sequence and the values of one batch.
Batch = tuple[int, list[bytes]]


class ViolationError(AssertionError):
    """The broker broke a promise."""


@dataclass
class TopicModel:
    """Partition 0 of one topic, written by one idempotent producer."""

    name: str
    # Whether every acknowledged record must outlive the loss of power.
    is_flushed: bool
    # Whether records may go from the start by retention.
    is_short: bool = False
    producer_id: int = -1
    next_sequence: int = 0
    # Offset -> value of each record that was acknowledged, or read once.
    values: dict[int, bytes] = field(default_factory=dict)
    # Sent and not answered: in the log or not.
    unknown: list[Batch] = field(default_factory=list)
    # All values that were ever sent and not answered.
    ever_unknown: set[bytes] = field(default_factory=set)
    # Where the log at least begins again after a clean stop.
    log_start_offset: int = 0
    # The last acknowledged batch: base offset and content.
    last: tuple[int, Batch] | None = None

    def acknowledged(self, base_offset: int, batch: Batch) -> None:
        """The broker said that the batch lies at `base_offset`."""
        for offset, value in enumerate(batch[1], base_offset):
            known = self.values.get(offset)
            if known not in (None, value):
                raise ViolationError(f"{self.name}: offset {offset} was given twice")
            self.values[offset] = value
        self.last = (base_offset, batch)

    def check(self, found: Sequence[tuple[int, bytes]], span: tuple[int, int], synced: int) -> int:
        """The broker has started again, and the topic was read.

        Args:
            found: offset and value of every record there is, in order.
            span: log start and log end offset.
            synced: the end of the records that were known to be synced, or acknowledged after a
            kill.

        Returns:
            How many acknowledged records the loss of power took.
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
