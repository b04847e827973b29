"""A map with a limit: the oldest entry makes room for a new one."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["BoundedCache"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of values that are expensive to compute. Threads may share it.

    Args:
        size_max: Limit of the number of entries.
    """

    __slots__ = ("_entries", "_size_max")

    def __init__(self, size_max: int) -> None:
        assert size_max > 0, size_max
        self._size_max = size_max
        # In the order of their insertion. Invariant: at most `size_max` entries.
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if it is absent."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Store a value."""
        entries = self._entries
        entries[key] = value
        while len(entries) > self._size_max:
            # `pop` with a default: another thread may have removed the same entry.
            entries.pop(next(iter(entries)), None)
