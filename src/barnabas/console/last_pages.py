"""The latest pages of a cluster, which are shown again while its brokers do not respond."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

# Pages that are kept, and their size together, by the length of their HTML.
_PAGES_MAX = 200
_SIZE_MAX = 16 * 1024 * 1024


class LastPage(NamedTuple):
    """The contents of a page."""

    template: str
    values: Mapping[str, Any]
    # Characters of its HTML.
    size: int
    # When the page was made (ms, wall clock).
    made_ms: int


class LastPages:
    """The contents of the pages that were shown last."""

    def __init__(self) -> None:
        self._pages: OrderedDict[Hashable, LastPage] = OrderedDict()
        self._size = 0

    def keep(self, key: Hashable, page: LastPage) -> None:
        """Keep a page, and forget older ones if there are too many.

        Args:
            key: The address of the page, and the user whose rights decided about its contents.
            page: The page.
        """
        self.forget(key)
        self._pages[key] = page
        self._size += page.size
        while len(self._pages) > _PAGES_MAX or self._size > _SIZE_MAX:
            self.forget(next(iter(self._pages)))

    def forget(self, key: Hashable) -> None:
        """Forget a page."""
        gone = self._pages.pop(key, None)
        self._size -= 0 if gone is None else gone.size

    def find(self, key: Hashable) -> LastPage | None:
        """Return a page; None if it is not kept."""
        return self._pages.get(key)
