"""Syncs of a log off the event loop, with one sync for many callers (Kafka: flush).

A sync covers the log up to its end at submission. Later appends, and callers that arrive during the
sync, are covered by the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.runtime.disk import is_out_of_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.disk import Disk
    from barnabas.storage.log_dependencies import LogDependencies

# Delay before an operation without a free descriptor is retried.
RETRY_MS = 1_000


def sync_files(
    disk: Disk,
    directory: str,
    syncs: Sequence[Callable[[], None]],
    paths: Sequence[str] | None,
    with_parent: bool = True,
) -> None:
    """Run `syncs`, then sync the files of `paths` and the directory; callable on any thread.

    Args:
        paths: files written since the last sync; None if the directory is unchanged too.
        with_parent: whether to sync the parent directory too, in case the directory is new.
    """
    for sync in syncs:
        sync()
    if paths is None:
        return
    for path in paths:
        try:
            file = disk.open(path, create=False, briefly=True)
        except FileNotFoundError:
            # The file was deleted and is no longer needed.
            continue
        try:
            file.sync()
        finally:
            file.close()
    try:
        disk.sync_directory(directory)
    except FileNotFoundError:
        # The directory was renamed, either for deletion or, already synced, to replace another log.
        return
    if with_parent:
        disk.sync_directory(directory.rpartition("/")[0] or ".")


class Flushable(Protocol):
    """The part of LogSync that a flusher uses."""

    @property
    def log_end_offset(self) -> int:
        """Exclusive end of the written records."""
        ...

    @property
    def is_synced(self) -> bool:
        """Whether there is nothing to sync."""
        ...

    @property
    def truncation_count(self) -> int:
        """Number of truncations; the result of a sync started before one is ignored."""
        ...

    def prepare_flush(self) -> Callable[[], None]:
        """Return a function, callable on any thread, that syncs all written records."""
        ...

    def on_flushed(self, end_offset: int) -> None:
        """Record that all records below `end_offset` are synced."""
        ...

    def on_flush_failed(self, error: BaseException) -> None:
        """Handle a failed sync; unsynced records may be lost."""
        ...


class Flusher:
    """Runs at most one sync of a log at a time."""

    __slots__ = ("_dependencies", "_is_running", "_log", "_waiting")

    def __init__(self, log: Flushable, dependencies: LogDependencies) -> None:
        self._log = log
        self._dependencies = dependencies
        # Whether a sync runs or waits for a free descriptor. Invariant: at most one sync at a time.
        self._is_running = False
        # Callbacks for the next sync. `_start` takes all of them.
        self._waiting: list[Callable[[BaseException | None], None]] = []

    def flush(self, on_done: Callable[[BaseException | None], None]) -> None:
        """Sync all written records, then call `on_done` with None or the error.

        The callback may run before this returns, if nothing is unsynced or the executor works
        inline.
        """
        if not self._is_running and self._log.is_synced:
            on_done(None)
            return
        self._waiting.append(on_done)
        if not self._is_running:
            self._start()

    def _start(self) -> None:
        waiting, self._waiting = self._waiting, []
        end_offset, truncations = self._log.log_end_offset, self._log.truncation_count
        try:
            work = self._log.prepare_flush()
        except OSError as error:
            self._finish(end_offset, truncations, waiting, error)
            return
        self._is_running = True
        clock = self._dependencies.clock
        started_ms = clock.monotonic_ms()

        def on_done(_: None, error: BaseException | None) -> None:
            self._dependencies.flush_times.update(clock.monotonic_ms() - started_ms)
            self._finish(end_offset, truncations, waiting, error)

        self._dependencies.executor.submit(work, on_done)

    def _finish(
        self,
        end_offset: int,
        truncations: int,
        waiting: list[Callable[[BaseException | None], None]],
        error: BaseException | None,
    ) -> None:
        if is_out_of_descriptors(error):
            # No sync has failed, but a file could not be opened. The whole sync is repeated.
            self._is_running = True
            self._waiting = [*waiting, *self._waiting]
            self._dependencies.on_descriptor_shortage()
            self._dependencies.timer.call_later(RETRY_MS, self._start)
            return
        self._is_running = False
        if error is None:
            if truncations == self._log.truncation_count:
                self._log.on_flushed(end_offset)
        else:
            self._log.on_flush_failed(error)
        for on_done in waiting:
            on_done(error)
        if self._waiting and not self._is_running:
            self._start()
