"""Bounded table of recently used values by name, for names that clients choose.

In a large table, each new entry checks the two oldest entries. An idle entry is dropped, and an
active one moves to the end. The cost of an entry is therefore constant, and idle entries disappear
in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

ENTRIES_MAX = 10_000
_CHECKED_PER_ADD = 2
# Number of entries below which no entry is checked. Metrics of this many idle clients stay.
_ENTRIES_FREE = 1000


class UsedRecently(Generic[K, V]):
    """Values by name. Above `entries_max` the oldest value is dropped, even if it is active."""

    __slots__ = ("_entries", "_entries_max", "_is_idle")

    def __init__(self, is_idle: Callable[[V, float], bool], entries_max: int = ENTRIES_MAX) -> None:
        """Args:
        is_idle: returns whether a value is equivalent to a new one at a time (ms).
        entries_max: maximum number of entries.
        """
        self._is_idle = is_idle
        self._entries_max = entries_max
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: K) -> V | None:
        """Return the value of a name, or None."""
        return self._entries.get(name)

    def add(self, name: K, value: V, now_ms: float) -> None:
        """Add a new value, and check the two oldest entries."""
        entries = self._entries
        if len(entries) >= _ENTRIES_FREE:
            for _ in range(_CHECKED_PER_ADD):
                oldest = next(iter(entries))
                kept = entries.pop(oldest)
                if not self._is_idle(kept, now_ms):
                    entries[oldest] = kept
        if len(entries) >= self._entries_max:
            del entries[next(iter(entries))]
        entries[name] = value

    def remove_if(self, is_expired: Callable[[V], bool]) -> None:
        """Remove the entries whose value has expired."""
        expired = [name for name, value in self._entries.items() if is_expired(value)]
        for name in expired:
            del self._entries[name]

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()

    def items(self) -> Iterator[tuple[K, V]]:
        """Return an iterator over all names and values."""
        return iter(self._entries.items())
