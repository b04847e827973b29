"""The maintenance of a table of either kind, and its reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # Called with the number of finished files and of all files.
    Progress = Callable[[int, int], None]

# Files below this share of the target size count as small.
SMALL_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of a table."""

    # delta or iceberg.
    kind: str
    # Version of a Delta table, or id of the current snapshot; None before the first one.
    snapshot: int | None
    # Rows that readers see: deleted ones do not count.
    rows: int
    files: int
    # Size of all files, bytes.
    size: int
    # Files that are smaller than SMALL_SHARE of the target size.
    small_files: int
    # Versions or snapshots that can still be read.
    snapshots: int
    # Time of the oldest of them, ms since 1970.
    oldest_ms: int | None
    # By id of a streaming query: its last batch. Delta tables cannot list them.
    queries: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction."""

    # Files that were replaced, and those that replace them.
    removed_files: int = 0
    added_files: int = 0
    # Small files that another writer replaced at the same time.
    lost_files: int = 0
    # Files that cannot be compacted here, with the reason.
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expiry:
    """The snapshots and files that an expiry removes from a table, or would remove."""

    # Ids of snapshots; Delta tables have no such list.
    snapshots: tuple[int, ...]
    # Addresses of files.
    files: tuple[str, ...]


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
