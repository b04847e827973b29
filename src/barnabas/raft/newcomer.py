"""A static voter that began with an empty directory has no vote at first.

It may be the voter of an old quorum whose disk was lost: then it has forgotten which votes it gave
and which records it helped to commit, and a vote from it could elect a leader that lacks them. With
static voters the others cannot tell, for they know a voter by its node id alone.

So it takes no part until one of these is certain:

* The cluster is new: every other voter's log was found empty since this one started.
* It has everything: it has copied the log of a leader up to a record that was appended after it
  had reached the leader's log end, and that the other voters have committed without it. Only the
  leader of the newest epoch can have such a record committed.

Meanwhile its fetches name no replica, so that no leader counts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.runtime.disk import Disk

NEWCOMER_FILE = "voter-without-vote"


class Newcomer:
    """What a voter without a vote has found out."""

    __slots__ = ("_reached", "empty")

    def __init__(self) -> None:
        # Other voters whose logs were found empty since this process started.
        self.empty: set[int] = set()
        # (epoch, offset): the log end of that epoch's leader when this replica first reached it.
        self._reached: tuple[int, int] | None = None

    def is_first(self, others: Iterable[int]) -> bool:
        """Whether the cluster is new: no other voter has a record."""
        return self.empty.issuperset(others)

    def reach(self, epoch: int, end_offset: int) -> None:
        """This replica has all that the leader of `epoch` has at the moment."""
        if self._reached is None or self._reached[0] != epoch:
            self._reached = epoch, end_offset

    def has_caught_up(self, epoch: int, high_watermark: int) -> bool:
        """Whether a record is committed that the leader appended after it was reached."""
        reached = self._reached
        return reached is not None and reached[0] == epoch and high_watermark > reached[1]


class NewcomerFile:
    """Says that the voter of a data directory has no vote yet; gone once it has."""

    __slots__ = ("_directory", "_disk", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        """Args:
        directory: the data directory of the metadata log.
        """
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{NEWCOMER_FILE}"

    def exists(self) -> bool:
        """Whether the voter has no vote yet."""
        return self._disk.exists(self._path)

    def write(self) -> None:
        """The directory is about to be formatted; on disk when this returns."""
        self._disk.write_atomically(self._path, b"")

    def remove(self) -> None:
        """The voter has its vote from now on; on disk when this returns."""
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_directory(self._directory)
