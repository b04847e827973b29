"""The read-only interface through which the quorum core sees the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.raft.listener import SnapshotId


class LogView(Protocol):
    """A read-only view of the metadata log."""

    @property
    def start_offset(self) -> int:
        """First offset of the log. Earlier records are only in snapshots."""
        ...

    @property
    def end_offset(self) -> int:
        """Exclusive end of the written records, whether or not they are synced."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; 0 if the log never had a record."""
        ...

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The snapshot that ends where the log begins; None for a log that begins at 0."""
        ...

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot; None if there is none."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch` in the log, its end offset).

        The result is (-1, -1) if there is no such epoch.
        """
        ...
