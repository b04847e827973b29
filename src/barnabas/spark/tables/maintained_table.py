"""What maintenance does with a table of either kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.spark.tables.reports import Compaction, Expiry, Progress, TableStatus


class MaintainedTable(Protocol):
    """A table that streams may write meanwhile. A kill leaves it as it was, with unnamed files."""

    def status(self, target_bytes: int) -> TableStatus:
        """Return the state of the table.

        Raises:
            MaintenanceError: rows are deleted in a way that cannot be counted here.
        """

    def compact(self, target_bytes: int, progress: Progress) -> Compaction:
        """Replace small files by files of about the target size.

        Raises:
            MaintenanceError: the table has a format that cannot be compacted here, or other writers
                changed it during all attempts.
        """

    def expire(self, before_ms: int, *, execute: bool, progress: Progress) -> Expiry:
        """Remove old snapshots, and files that no snapshot names.

        Args:
            before_ms: snapshots and files from before this time are old. No batch may take so
                long that its files are older when it is committed.
            execute: whether to remove them, or only to find them.
            progress: is called while files are removed.
        """
