"""The links at the top of all pages, from the entries that the modules of pages export.

The first row has one link for each group. A group of several entries has a second row, which the
pages of that group show. No script and no menu that opens is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.console.settings import ConsoleSettings

# The groups in the order of the first row. Groups of other names follow.
GROUPS = (
    "Cluster",
    "Topics",
    "Groups",
    "Schemas",
    "Connect",
    "Security",
    "Pipelines",
    "Doctor",
)

# The page of links, which is shown for brokers that may have links.
LINKS_PAGE = "/links"


def _always(_settings: ConsoleSettings) -> bool:
    return True


class Entry(NamedTuple):
    """One page that is reached from the top of all pages.

    A module of pages exports `NAVIGATION`, a list of its entries, beside `ROUTES`.
    """

    # The name in the first row.
    group: str
    # The name in the second row.
    title: str
    path: str
    # Paths of further pages that belong to the entry.
    more: tuple[str, ...] = ()
    # Returns whether the entry is shown with these settings.
    is_shown: Callable[[ConsoleSettings], bool] = _always


class Link(NamedTuple):
    """A link at the top of a page."""

    title: str
    path: str
    # Whether the page on the screen belongs to it.
    is_current: bool


class Navigation(NamedTuple):
    """The rows of links of one page; the second one is empty in a group of one entry."""

    groups: list[Link]
    group: str
    entries: list[Link]


def navigation(entries: Iterable[Entry], path: str, settings: ConsoleSettings) -> Navigation:
    """Return the links of the page of this path (without the prefix of a cluster)."""
    by_group: dict[str, list[Entry]] = {name: [] for name in GROUPS}
    for entry in entries:
        if entry.is_shown(settings):
            by_group.setdefault(entry.group, []).append(entry)
    groups, current = [], ""
    for name, found in by_group.items():
        if found:
            is_current = any(path in (entry.path, *entry.more) for entry in found)
            current = name if is_current else current
            groups.append(Link(name, found[0].path, is_current))
    shown = by_group[current] if current and len(by_group[current]) > 1 else []
    rows = [Link(each.title, each.path, path in (each.path, *each.more)) for each in shown]
    return Navigation(groups, current, rows)
