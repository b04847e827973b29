"""What the quorum core may know of the log that its driver keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.raft.listener import SnapshotId


class LogView(Protocol):
    """What the core may know of the log; it never writes."""

    @property
    def start_offset(self) -> int:
        """What lies below is in snapshots only."""
        ...

    @property
    def end_offset(self) -> int:
        """Exclusive; of what is written, synced or not."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, 0 for a log that never had one."""
        ...

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The snapshot that ends where the log begins; None for a log that begins at 0."""
        ...

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch` in the log, its end offset); (-1, -1) if there is none."""
        ...
