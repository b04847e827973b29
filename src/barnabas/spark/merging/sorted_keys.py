"""The keys of a batch, to find the files of a table that can have them by their statistics."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class SortedKeys:
    """The different values of one key column, in their order."""

    def __init__(self, column: pa.ChunkedArray | pa.Array) -> None:
        self._values: list[Any] = sorted(column.unique().to_pylist())

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> list[Any]:
        """Return all values."""
        return self._values

    def within(self, low: Any, high: Any) -> tuple[Any, Any] | None:
        """Return the lowest and the highest value from `low` to `high`; None without one."""
        first, end = bisect_left(self._values, low), bisect_right(self._values, high)
        return (self._values[first], self._values[end - 1]) if first < end else None
