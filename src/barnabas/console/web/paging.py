"""Pages of long tables, so that no request renders more than a bounded number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Page", "paged"]

T = TypeVar("T")
ROWS_MAX = 100


class Page(NamedTuple, Generic[T]):
    """Some rows of a table; pages are counted from 1."""

    rows: Sequence[T]
    number: int
    last: int
    # Rows of all pages.
    total: int


def paged(rows: Sequence[T], number: int) -> Page[T]:
    """Return one page of the rows; the last one if there are fewer pages."""
    last = max(1, -(-len(rows) // ROWS_MAX))
    number = min(max(1, number), last)
    start = (number - 1) * ROWS_MAX
    return Page(rows[start : start + ROWS_MAX], number, last, len(rows))
