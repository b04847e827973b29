"""The names of topics or groups that a link's pattern matches.

A match takes up to 0.1 ms, so 10,000 names would hold the event loop for a second in each round.
Each name is therefore matched once, and new names are matched in slices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.sender import Pause

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.client.admin.sender import Plan
    from barnabas.settings.pattern import Pattern

# Names that are matched in one turn of the loop.
_MATCHES_AT_ONCE = 50


class NameFilter:
    """The decisions about the names of the latest round."""

    __slots__ = ("_decisions", "_pattern")

    def __init__(self) -> None:
        # The pattern of the decisions.
        self._pattern: Pattern | None = None
        # Whether the pattern matches, by name; only names of the latest round.
        self._decisions: dict[str, bool] = {}

    def select(self, pattern: Pattern, names: Collection[str]) -> Plan[list[str]]:
        """Return the names that match, in the order of `names`. Pauses after each slice."""
        known = self._decisions if pattern == self._pattern else {}
        decisions: dict[str, bool] = {}
        matched = 0
        for name in names:
            decision = known.get(name)
            if decision is None:
                decision = pattern.matches(name)
                matched += 1
                if matched % _MATCHES_AT_ONCE == 0:
                    yield Pause(0.0)
            decisions[name] = decision
        self._pattern, self._decisions = pattern, decisions
        return [name for name, decision in decisions.items() if decision]
