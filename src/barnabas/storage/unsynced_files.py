"""A log's small files that were written and are not known to be synced.

A sync takes time, and another one may begin and end meanwhile: the log's owner closes it, or a
producer's records must be on the disk in this very turn. What the first one was to sync is synced
by the second one too, until one of both has done it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class UnsyncedFiles:
    """The paths, each with the mark of its latest change."""

    __slots__ = ("_changes", "_done", "_marks")

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._changes = 0
        # What syncs have covered, path and mark; threads append to it.
        self._done: list[dict[str, int]] = []

    def add(self, paths: Sequence[str]) -> None:
        """These have changed."""
        self._changes += 1
        self._marks.update(dict.fromkeys(paths, self._changes))

    def covering(self, prepare: Callable[[list[str]], Callable[[], None]]) -> Callable[[], None]:
        """The work of a sync that covers all that is unsynced now.

        Args:
            prepare: makes the work, for any thread, that syncs these paths with the records.
        """
        self._forget_done()
        covered = self._marks.copy()
        work = prepare(list(covered))
        if not covered:
            return work

        def sync() -> None:
            work()
            self._done.append(covered)

        return sync

    def on_directory_renamed(self, old: str, new: str) -> None:
        """The directory has a new name."""
        self._forget_done()
        self._marks = {new + path[len(old) :]: mark for path, mark in self._marks.items()}

    def _forget_done(self) -> None:
        while self._done:
            for path, mark in self._done.pop().items():
                if self._marks.get(path) == mark:
                    del self._marks[path]
