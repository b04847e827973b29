"""Finds the members with the fewest and with the most partitions, for leveling a topic.

The members are sorted by their number of partitions. A range at the front holds those with the
fewest; it grows to the right as its members gain partitions. A range at the back holds those with
the most; it grows to the left as its members give partitions away. Each range takes its members in
turn, so that the work for a partition does not depend on the number of members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class LoadRanges:
    """Both ranges over the subscribers of one topic (Kafka: MemberAssignmentBalancer).

    It counts the movements that its results imply. The caller changes `loads` meanwhile, and no
    member outside both ranges.
    """

    __slots__ = (
        "_least_end",
        "_least_next",
        "_loads",
        "_members",
        "_most_end",
        "_most_next",
        "_most_start",
        "least",
        "most",
    )

    def __init__(self, loads: list[int], members: Sequence[int]) -> None:
        """Sort the members.

        Args:
            loads: the number of partitions of each member of the group, by its index.
            members: indexes of the topic's subscribers, ascending. There is at least one.
        """
        self._loads = loads
        self._members = sorted(members, key=loads.__getitem__)
        # The range of members with the fewest partitions ends here (exclusive).
        self._least_end = 0
        self._least_next = 0
        # The range of members with the most partitions: start, end (exclusive).
        self._most_start = self._most_end = len(members)
        self._most_next = len(members) - 1
        # Number of partitions of the members of each range before the current round.
        self.least = loads[self._members[0]] - 1
        self.most = loads[self._members[-1]] + 1

    @property
    def imbalance(self) -> int:
        """The difference between the largest and the smallest number of partitions at first."""
        return self._loads[self._members[-1]] - self._loads[self._members[0]]

    @property
    def is_level(self) -> bool:
        """Whether a further movement between the ranges would improve nothing."""
        return self.most - self.least <= 1

    def next_least(self) -> int:
        """Return the member that gets the next partition."""
        if self._least_next >= self._least_end:
            self.least += 1
            while self._least_end < len(self._members) and (
                self._loads[self._members[self._least_end]] == self.least
            ):
                self._least_end += 1
            self._least_next = 0
        found = self._members[self._least_next]
        self._least_next += 1
        return found

    def next_most(self) -> int | None:
        """Return the member that gives the next partition away; None if there is none left."""
        if self._most_next < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All members of the range were excluded.
                self.most = self._loads[self._members[self._most_start - 1]]
            else:
                self.most -= 1
            while self._most_start > 0 and (
                self._loads[self._members[self._most_start - 1]] == self.most
            ):
                self._most_start -= 1
            self._most_next = self._most_end - 1
        if self._most_next < 0:
            return None
        found = self._members[self._most_next]
        self._most_next -= 1
        return found

    def exclude_most(self) -> None:
        """Exclude the last result of `next_most`: the member has nothing to give away."""
        members, place, last = self._members, self._most_next + 1, self._most_end - 1
        members[place], members[last] = members[last], members[place]
        self._most_end = last
