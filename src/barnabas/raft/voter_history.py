"""Which voters and which kraft.version hold from which offset of the log on (KIP-853).

The last ones are in force as soon as they are in the log, committed or not; what is truncated does
not hold any more. Kafka's KRaftControlRecordStateMachine.
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
        # (offset, value), offsets ascending.
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def last(self) -> VoterSet:
        """The voters in force."""
        return self._voters[-1][1] if self._voters else self.static

    @property
    def last_offset(self) -> int | None:
        """Offset of their record; None if they are static."""
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        """The level in force; 0 while voters are static."""
        return self._versions[-1][1] if self._versions else 0

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        """A VotersRecord stands at `offset`."""
        self._voters = [each for each in self._voters if each[0] < offset]
        self._voters.append((offset, voters))

    def add_kraft_version(self, offset: int, level: int) -> None:
        """A KRaftVersionRecord stands at `offset`."""
        self._versions = [each for each in self._versions if each[0] < offset]
        self._versions.append((offset, level))

    def truncate_to(self, offset: int) -> None:
        """The log ends at `offset` now."""
        self._voters = [each for each in self._voters if each[0] < offset]
        self._versions = [each for each in self._versions if each[0] < offset]

    def forget_below(self, offset: int) -> None:
        """A snapshot stands for the log below `offset`: only what holds there is still needed."""
        self._voters = _from(self._voters, offset)
        self._versions = _from(self._versions, offset)

    def replace_by(self, other: VoterHistory) -> None:
        """Log and snapshot give way to the leader's, which say this."""
        self._voters = other._voters
        self._versions = other._versions

    def voters_at(self, offset: int) -> VoterSet | None:
        """The voters of the last record below `offset`; None if there is none."""
        found = [voters for at, voters in self._voters if at < offset]
        return found[-1] if found else None

    def kraft_version_at(self, offset: int) -> int:
        """The level of the last record below `offset`."""
        found = [level for at, level in self._versions if at < offset]
        return found[-1] if found else 0


def _from(entries: list[tuple[int, T]], offset: int) -> list[tuple[int, T]]:
    """Those from `offset` on, and the last one below."""
    below = [each for each in entries if each[0] < offset]
    return below[-1:] + [each for each in entries if each[0] >= offset]
