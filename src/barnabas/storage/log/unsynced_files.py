"""Small files of a log that were written and are not known to be synced.

While one sync runs, another one may begin and end: the owner closes the log, or a producer's
records must be synced in the same turn. The second sync therefore also covers the files of the
first, until one of the two has completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class UnsyncedFiles:
    """Paths of unsynced files, each with the number of its latest change."""

    __slots__ = ("_changes", "_done", "_marks")

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._changes = 0
        # Paths and change numbers covered by completed syncs; other threads append to it.
        self._done: list[dict[str, int]] = []

    def add(self, paths: Sequence[str]) -> None:
        """Record that these files have changed."""
        self._changes += 1
        self._marks.update(dict.fromkeys(paths, self._changes))

    def covering(self, prepare: Callable[[list[str]], Callable[[], None]]) -> Callable[[], None]:
        """Return a sync that covers all files that are unsynced now.

        Args:
            prepare: returns a function, callable on any thread, that syncs these paths and the
                records.
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
        """Adopt the new name of the directory."""
        self._forget_done()
        self._marks = {new + path[len(old) :]: mark for path, mark in self._marks.items()}

    def _forget_done(self) -> None:
        while self._done:
            for path, mark in self._done.pop().items():
                if self._marks.get(path) == mark:
                    del self._marks[path]
