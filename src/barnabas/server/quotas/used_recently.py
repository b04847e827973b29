"""A table of what peers have used, that ends somewhere: peers choose their names themselves.

Each new entry has the two oldest ones looked at: an idle one is dropped, one in use goes to the
end. So a flood of names costs the same for each of them, and idle entries leave in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")

ENTRIES_MAX = 10_000
_LOOKED_AT = 2
# Below this nothing is looked at.
_ENTRIES_FREE = 100


class UsedRecently(Generic[K, V]):
    """Values by name, at most `entries_max`; beyond that the oldest is dropped even in use."""

    __slots__ = ("_entries", "_entries_max", "_is_idle")

    def __init__(self, is_idle: Callable[[V, float], bool], entries_max: int = ENTRIES_MAX) -> None:
        """Args:
        is_idle: whether a value is as good as a new one, at a time in ms.
        """
        self._is_idle = is_idle
        self._entries_max = entries_max
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: K) -> V | None:
        """The value, if it is kept."""
        return self._entries.get(name)

    def add(self, name: K, value: V, now_ms: float) -> None:
        """Keep a new value."""
        entries = self._entries
        if len(entries) >= _ENTRIES_FREE:
            for _ in range(_LOOKED_AT):
                oldest = next(iter(entries))
                kept = entries.pop(oldest)
                if not self._is_idle(kept, now_ms):
                    entries[oldest] = kept
        if len(entries) >= self._entries_max:
            del entries[next(iter(entries))]
        entries[name] = value

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    def items(self) -> Iterator[tuple[K, V]]:
        """All that are kept."""
        return iter(self._entries.items())
