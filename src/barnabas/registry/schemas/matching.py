"""A maximum matching of two groups, such as the alternatives of two schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.registry.schemas.limits import Budget


def maximum_matching(edges: Sequence[Sequence[int]], budget: Budget) -> int:
    """Return how many of the first group can have a partner of the second at the same time.

    Args:
        edges: For each member of the first group, the possible partners.
        budget: Counts the steps.

    Raises:
        InvalidSchemaError: The matching has too many steps.
    """
    found = _Matching(edges, budget)
    return sum(found.add(member) for member in range(len(edges)))


class _Matching:
    def __init__(self, edges: Sequence[Sequence[int]], budget: Budget) -> None:
        self._edges = edges
        self._budget = budget
        self._partner_of: dict[int, int] = {}
        self._member_of: dict[int, int] = {}

    def add(self, start: int) -> bool:
        """Give a partner to one more member, for which others may change theirs."""
        reached_from: dict[int, int] = {}
        pending = [start]
        while pending:
            member = pending.pop()
            for partner in self._edges[member]:
                self._budget.spend()
                if partner in reached_from:
                    continue
                reached_from[partner] = member
                if partner not in self._member_of:
                    self._change(partner, reached_from)
                    return True
                pending.append(self._member_of[partner])
        return False

    def _change(self, free: int, reached_from: dict[int, int]) -> None:
        """Give each member on the way to a free partner the next partner of this way."""
        partner: int | None = free
        while partner is not None:
            member = reached_from[partner]
            before = self._partner_of.get(member)
            self._partner_of[member], self._member_of[partner] = partner, member
            partner = before
