"""The voters and kraft.version by log offset (KIP-853).

A record is in force as soon as it is in the log, committed or not. Truncation removes it. This is
Kafka's KRaftControlRecordStateMachine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from barnabas.raft.voter_set import VoterSet

T = TypeVar("T")


class VoterHistory:
    """Voters and kraft.version by the offset of their record."""

    __slots__ = ("_versions", "_voters", "static")

    def __init__(self, static: VoterSet) -> None:
        # In force while no record names voters.
        self.static = static
        # (offset, value) in ascending order of offsets.
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def last(self) -> VoterSet:
        """The voters in force."""
        return self._voters[-1][1] if self._voters else self.static

    @property
    def last_offset(self) -> int | None:
        """Offset of the record of the voters in force; None if the voters are static."""
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        """The kraft.version in force; 0 while the voters are static."""
        return self._versions[-1][1] if self._versions else 0

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        """Add the VotersRecord at `offset`, replacing records at or above that offset."""
        self._voters = [each for each in self._voters if each[0] < offset]
        self._voters.append((offset, voters))

    def add_kraft_version(self, offset: int, level: int) -> None:
        """Add the KRaftVersionRecord at `offset`, replacing records at or above that offset."""
        self._versions = [each for each in self._versions if each[0] < offset]
        self._versions.append((offset, level))

    def truncate_to(self, offset: int) -> None:
        """Remove the records at or above `offset`, where the log now ends."""
        self._voters = [each for each in self._voters if each[0] < offset]
        self._versions = [each for each in self._versions if each[0] < offset]

    def forget_below(self, offset: int) -> None:
        """Remove the records below `offset` except the last, because a snapshot replaces them."""
        self._voters = _from(self._voters, offset)
        self._versions = _from(self._versions, offset)

    def replace_by(self, other: VoterHistory) -> None:
        """Take over the content of `other`, after the leader's snapshot has replaced the log."""
        self._voters = other._voters
        self._versions = other._versions

    def voters_at(self, offset: int) -> VoterSet | None:
        """Return the voters of the last record below `offset`; None if there is none."""
        found = [voters for at, voters in self._voters if at < offset]
        return found[-1] if found else None

    def kraft_version_at(self, offset: int) -> int:
        """Return the kraft.version of the last record below `offset`; 0 if there is none."""
        found = [level for at, level in self._versions if at < offset]
        return found[-1] if found else 0


def _from(entries: list[tuple[int, T]], offset: int) -> list[tuple[int, T]]:
    """Return the entries from `offset` on, and the last entry below it."""
    below = [each for each in entries if each[0] < offset]
    return below[-1:] + [each for each in entries if each[0] >= offset]
