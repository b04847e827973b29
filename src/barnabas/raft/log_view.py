"""What the quorum core may know of the log that its driver keeps."""

from __future__ import annotations

from typing import Protocol


class LogView(Protocol):
    """What the core may know of the log; it never writes."""

    @property
    def end_offset(self) -> int:
        """Exclusive; of what is written, synced or not."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, 0 for an empty log."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch` in the log, its end offset); (-1, -1) if there is none."""
        ...
