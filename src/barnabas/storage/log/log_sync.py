"""Syncs of one log, and its recovery point (Kafka: UnifiedLog.flush).

A sync covers the batches from the recovery point on, and the small files that were written since
the last sync.

While one sync runs, another one may begin and end: the owner closes the log, or a producer's
records must be synced in the same turn. The second sync therefore also covers the small files of
the first, until one of the two has completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.storage.log.flusher import Flusher
from barnabas.storage.topic_partition import LOG_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.log.local_log import LocalLog
    from barnabas.storage.log.log_offsets import LogOffsets
    from barnabas.storage.log_dependencies import DiskGuard, LogDependencies


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


class SmallFiles(Protocol):
    """A part of the log that has separate files besides the segments."""

    def take_unsynced(self) -> list[str]:
        """Return the paths that the next sync must include; each change is returned only once."""
        ...


class LogSync:
    """Syncs a log, now or off the event loop."""

    __slots__ = (
        "_dependencies",
        "_flusher",
        "_guard",
        "_is_final",
        "_local",
        "_offsets",
        "_small_files",
        "_unsynced",
        "_whole_end",
        "last_flush_ms",
        "truncation_count",
    )

    def __init__(
        self,
        local: LocalLog,
        offsets: LogOffsets,
        guard: DiskGuard,
        small_files: Sequence[SmallFiles],
        dependencies: LogDependencies,
    ) -> None:
        """Create the syncs; `on_opened_whole` follows if the log is completely synced."""
        self._local = local
        self._offsets = offsets
        self._guard = guard
        self._small_files = small_files
        self._dependencies = dependencies
        self._unsynced = UnsyncedFiles()
        self._flusher = Flusher(self, dependencies)
        # Whether the sync prepared last includes the indexes of the active segment.
        self._is_final = False
        # Log end at the last sync of all files, including the indexes of the active segment.
        self._whole_end = -1
        # Monotonic time of the last completed sync, in ms; at first, of the opening.
        self.last_flush_ms = dependencies.clock.monotonic_ms()
        # Number of truncations since the log was opened. A sync that began before the latest
        # truncation does not advance the recovery point.
        self.truncation_count = 0

    @property
    def log_end_offset(self) -> int:
        """Exclusive end of the written records."""
        return self._offsets.log_end_offset

    @property
    def is_due(self) -> bool:
        """Whether at least `flush.messages` records are not synced."""
        offsets = self._offsets
        unsynced = offsets.log_end_offset - offsets.recovery_point
        return unsynced >= self._local.config.flush_messages

    @property
    def is_synced(self) -> bool:
        """Whether all records are synced, with the indexes of sealed segments."""
        offsets = self._offsets
        return (
            offsets.recovery_point >= offsets.log_end_offset
            and not self._local.has_unsynced_indexes
        )

    @property
    def safe_recovery_point(self) -> int:
        """Recovery point for the checkpoint: all indexes of segments below it are synced.

        If the active segment is rolled at its present end, its indexes are not synced yet. So the
        recovery point stays below that end, and the next recovery reads the segment.
        """
        offsets = self._offsets
        point = self._local.sealed_from(offsets.recovery_point)
        if point == offsets.log_end_offset != self._whole_end:
            point = max(point - 1, self._local.segments.active.base_offset)
        return point

    def on_truncation(self) -> None:
        """Record that a truncation begins. Later appends may end where the log ended before."""
        self.truncation_count += 1
        self._whole_end = -1

    def on_opened_whole(self) -> None:
        """Record that all segments and indexes are synced."""
        self._whole_end = self._offsets.log_end_offset

    def flush(self, force: bool = False) -> None:
        """Sync up to the log end offset now; with `force` even if nothing is unsynced."""
        if not force and self.is_synced:
            return
        with self._guard:
            end_offset = self._offsets.log_end_offset
            self.prepare_flush()()
            self.on_flushed(end_offset)

    def flush_async(self, on_done: Callable[[BaseException | None], None]) -> None:
        """Sync up to the current log end offset off the event loop, then call `on_done`.

        Args:
            on_done: receives None or the error; may run before this returns if all is synced.
        """
        self._flusher.flush(on_done)

    def prepare_flush(self) -> Callable[[], None]:
        """Return a function, callable on any thread, that syncs all written records.

        The indexes of the active segment are not synced: after an unclean shutdown, opening the log
        rebuilds them.
        """
        return self.prepare_sync(is_final=False, with_parent=True)

    def prepare_sync(self, is_final: bool, with_parent: bool) -> Callable[[], None]:
        """Return a function, callable on any thread, that syncs the log.

        Args:
            is_final: whether to sync the indexes of the active segment too.
            with_parent: whether to sync the parent directory too if the log directory has new
                names; otherwise the caller syncs it.
        """
        self._is_final = is_final
        paths = [path for files in self._small_files for path in files.take_unsynced()]
        active = self._local.segments.active
        if active.is_new:
            # The directory entry is synced along with the first file in this list.
            paths.append(active.path(LOG_SUFFIX))
        if paths:
            self._unsynced.add(paths)
        return self._unsynced.covering(
            lambda unsynced: self._local.prepare_sync(unsynced, is_final, with_parent)
        )

    def on_flushed(self, end_offset: int) -> None:
        """Record that all records below `end_offset` are synced."""
        self.last_flush_ms = self._dependencies.clock.monotonic_ms()
        self._local.on_synced()
        self._offsets.on_synced(end_offset)
        if self._is_final:
            self._whole_end = end_offset

    def on_flush_failed(self, error: BaseException) -> None:
        """Handle a failed sync: unsynced records may be lost, and the sync is not retried."""
        if isinstance(error, OSError) and not self._guard.is_closed:
            self._guard.failure(error)

    def on_directory_renamed(self, old: str, new: str) -> None:
        """Adopt the new name of the log's directory."""
        self._unsynced.on_directory_renamed(old, new)
