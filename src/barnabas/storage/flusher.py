"""Syncing a log off the event loop, many waiting for one sync (Kafka: flush, recovery point).

Log end at submission: what is appended while a sync runs is covered by the next one, and whoever
asks meanwhile waits for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.runtime.disk import is_out_of_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.disk import Disk
    from barnabas.storage.doors import LogDoors

# Until what found no free descriptor is tried again.
RETRY_MS = 1_000


def sync_files(
    disk: Disk,
    directory: str,
    syncs: Sequence[Callable[[], None]],
    paths: Sequence[str] | None,
    with_parent: bool = True,
) -> None:
    """Run `syncs`, then sync the files of `paths` and the names in the directory; for any thread.

    Args:
        paths: files that were written since the last sync; None if no name is new either.
        with_parent: sync the name of the directory too, which may be as new as the names in it.
    """
    for sync in syncs:
        sync()
    if paths is None:
        return
    for path in paths:
        try:
            file = disk.open(path, create=False, briefly=True)
        except FileNotFoundError:
            # Deleted meanwhile: nobody needs it any more.
            continue
        try:
            file.sync()
        finally:
            file.close()
    try:
        disk.sync_directory(directory)
    except FileNotFoundError:
        # Renamed meanwhile: to be deleted, or, synced before, to take another log's place.
        return
    if with_parent:
        disk.sync_directory(directory.rpartition("/")[0] or ".")


class Flushable(Protocol):
    """What a flusher needs of a log."""

    @property
    def log_end_offset(self) -> int:
        """Exclusive end of what is written."""
        ...

    @property
    def recovery_point(self) -> int:
        """Exclusive end of what is known to be synced."""
        ...

    @property
    def is_synced(self) -> bool:
        """Whether there is nothing to sync."""
        ...

    @property
    def cut_count(self) -> int:
        """How often the log was cut; a sync that began before a cut says nothing of it."""
        ...

    def prepare_flush(self) -> Callable[[], None]:
        """The work, for any thread, that syncs all that is written now."""
        ...

    def on_flushed(self, end_offset: int) -> None:
        """All below `end_offset` is synced."""
        ...

    def on_flush_failed(self, error: BaseException) -> None:
        """The sync failed; nothing may be assumed of what was not synced before."""
        ...


class Flusher:
    """At most one sync of a log is under way."""

    __slots__ = ("_doors", "_is_running", "_log", "_waiting")

    def __init__(self, log: Flushable, doors: LogDoors) -> None:
        self._log = log
        self._doors = doors
        self._is_running = False
        # Who wants to know of the next sync.
        self._waiting: list[Callable[[BaseException | None], None]] = []

    def flush(self, on_done: Callable[[BaseException | None], None]) -> None:
        """Sync what is written now, then call back with None or the error.

        The callback may run before this returns, when there is nothing to sync or the executor
        works inline.
        """
        if not self._is_running and self._log.is_synced:
            on_done(None)
            return
        self._waiting.append(on_done)
        if not self._is_running:
            self._start()

    def _start(self) -> None:
        waiting, self._waiting = self._waiting, []
        end_offset, cuts = self._log.log_end_offset, self._log.cut_count
        try:
            work = self._log.prepare_flush()
        except OSError as error:
            self._finish(end_offset, cuts, waiting, error)
            return
        self._is_running = True
        clock = self._doors.clock
        started_ms = clock.monotonic_ms()

        def on_done(_: None, error: BaseException | None) -> None:
            self._doors.flush_times.update(clock.monotonic_ms() - started_ms)
            self._finish(end_offset, cuts, waiting, error)

        self._doors.executor.submit(work, on_done)

    def _finish(
        self,
        end_offset: int,
        cuts: int,
        waiting: list[Callable[[BaseException | None], None]],
        error: BaseException | None,
    ) -> None:
        if is_out_of_descriptors(error):
            # No sync has failed: a file could not be opened. All of it is done again.
            self._is_running = True
            self._waiting = [*waiting, *self._waiting]
            self._doors.on_descriptor_shortage()
            self._doors.timer.call_later(RETRY_MS, self._start)
            return
        self._is_running = False
        if error is None:
            if cuts == self._log.cut_count:
                self._log.on_flushed(end_offset)
        else:
            self._log.on_flush_failed(error)
        for on_done in waiting:
            on_done(error)
        if self._waiting and not self._is_running:
            self._start()
