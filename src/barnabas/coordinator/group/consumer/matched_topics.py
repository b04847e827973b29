"""The topics that regular expressions match, kept while the topics do not change.

A resolution of a group's expressions, or of another group's, uses them again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

# Limits on the kept matches of a shard: expressions, and names of topics.
_KEPT_EXPRESSIONS_MAX = 1_000
_KEPT_NAMES_MAX = 50_000


class Matched(NamedTuple):
    """The topics that an expression matches, whether or not members may read them."""

    # Offset of the metadata image whose topics were matched.
    version: int
    names: list[str]


class MatchedTopics:
    """The matches of the most recently used expressions. They are valid for the current topics."""

    __slots__ = ("_by_regex", "_names_count", "topic_changes")

    def __init__(self) -> None:
        self._by_regex: OrderedDict[str, Matched] = OrderedDict()
        # Invariant: the number of names of all entries.
        self._names_count = 0
        # Number of `clear` calls. It only grows.
        self.topic_changes = 0

    def find(self, regex: str) -> Matched | None:
        """Return the matches of an expression, or None if they are unknown."""
        found = self._by_regex.get(regex)
        if found is not None:
            self._by_regex.move_to_end(regex)
        return found

    def add(self, regex: str, matched: Matched) -> None:
        """Keep the matches of an expression. Drop the least recently used ones above a limit."""
        self._drop(regex)
        self._by_regex[regex] = matched
        self._names_count += len(matched.names)
        while len(self._by_regex) > _KEPT_EXPRESSIONS_MAX or self._names_count > _KEPT_NAMES_MAX:
            self._drop(next(iter(self._by_regex)))

    def clear(self) -> None:
        """Drop all matches, because the topics have changed."""
        self.topic_changes += 1
        self._by_regex.clear()
        self._names_count = 0

    def _drop(self, regex: str) -> None:
        dropped = self._by_regex.pop(regex, None)
        if dropped is not None:
            self._names_count -= len(dropped.names)
