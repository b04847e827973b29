"""A static voter that starts with an empty directory may not vote at first.

It may be a voter of an existing quorum whose disk was lost. Then it has lost its earlier votes and
the records that it helped to commit. Its vote could elect a leader that lacks those records. With
static voters, the other voters cannot detect this, because they know a voter only by its node id.

The voter therefore does not vote until one of these conditions holds:

* The cluster is new: every other voter's log was found empty since this process started.
* The voter has all committed records. It first reaches a leader's log end, and then copies a record
  that was appended later and that the other voters committed without it. Only the leader of the
  newest epoch can commit such a record.

Until then, once its log has records, its fetches contain no replica id, so that no leader counts
them as fetches of a voter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.runtime.disk import Disk

UNPROVEN_VOTER_FILE = "voter-without-vote"


class UnprovenVoter:
    """The observations of a voter that may not vote yet."""

    __slots__ = ("_reached", "empty")

    def __init__(self) -> None:
        # Other voters whose logs were found empty since this process started.
        self.empty: set[int] = set()
        # (epoch, offset): the log end of that epoch's leader when this replica first reached it.
        self._reached: tuple[int, int] | None = None

    def is_first(self, others: Iterable[int]) -> bool:
        """Return whether the cluster is new, because no other voter has a record."""
        return self.empty.issuperset(others)

    def reach(self, epoch: int, end_offset: int) -> None:
        """Note that this replica has all records that the leader of `epoch` has now."""
        if self._reached is None or self._reached[0] != epoch:
            self._reached = epoch, end_offset

    def has_caught_up(self, epoch: int, high_watermark: int) -> bool:
        """Return whether a record is committed that was appended after `reach` was called."""
        reached = self._reached
        return reached is not None and reached[0] == epoch and high_watermark > reached[1]


class UnprovenVoterFile:
    """A marker file: while it exists, the voter of a data directory may not vote."""

    __slots__ = ("_directory", "_disk", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        """Create the accessor; the file itself is not touched.

        Args:
            disk: the disk of the directory.
            directory: the data directory of the metadata log.
        """
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{UNPROVEN_VOTER_FILE}"

    def exists(self) -> bool:
        """Return whether the voter may not vote yet."""
        return self._disk.exists(self._path)

    def write(self) -> None:
        """Create the file before the directory is formatted; on disk when this returns."""
        self._disk.write_atomically(self._path, b"")

    def remove(self) -> None:
        """Remove the file when the voter may vote; on disk when this returns."""
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_directory(self._directory)
