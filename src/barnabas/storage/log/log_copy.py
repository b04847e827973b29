"""Copy of a log into a future replica in another directory, a slice at a time (KIP-113).

Slices are read off the loop and appended on it, with unchanged offsets and leader epochs, as a
follower does with its leader's batches. Deletions at the log's start and truncations during the
copy are applied to the replica too. Records that only the remote tier has are not copied: the
replica begins with the local records, and with the epochs and producers of those before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.record.batch import batches
from barnabas.record.record import CorruptBatchError
from barnabas.runtime.disk import FileSlice
from barnabas.storage.errors import CorruptRecordError, StorageError
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Disk
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies

_SLICE_BYTES = 1 << 20
# A slice up to this size is read synchronously: it was just written, so the read is fast, and a
# read off the loop might never reach the log end.
_LAST_BYTES = 1 << 16
_RETRY_MS = 1_000
# Delay before the next check while the throttle is exceeded.
_THROTTLED_MS = 100


class CopyThrottle(Protocol):
    """A limit on the write rate of all copies of a broker together."""

    @property
    def is_exceeded(self) -> bool:
        """Whether the recent write rate exceeds the limit."""
        ...

    def record(self, size: int) -> None:
        """Count written bytes."""
        ...


class LogCopy:
    """A copy from one log into another."""

    __slots__ = (
        "_dependencies",
        "_is_cancelled",
        "_is_running",
        "_on_caught_up",
        "_on_failed",
        "_throttle",
        "_truncation_count",
        "future",
        "source",
    )

    def __init__(
        self,
        source: Log,
        future: Log,
        dependencies: LogDependencies,
        throttle: CopyThrottle,
        on_caught_up: Callable[[], None],
        on_failed: Callable[[StorageError], None],
    ) -> None:
        """Create the copy.

        Args:
            on_caught_up: called in the same turn in which both log ends are equal; the copy pauses
                until `start` is called again.
            on_failed: called when one of the logs became unusable; the copy has ended.
        """
        self.source = source
        self.future = future
        self._dependencies = dependencies
        self._throttle = throttle
        self._on_caught_up = on_caught_up
        self._on_failed = on_failed
        # `cut_count` of the source at the last comparison of both logs; None before the first.
        self._truncation_count: int | None = None
        self._is_running = False
        self._is_cancelled = False

    def start(self) -> None:
        """Start or continue in the next turn."""
        if not self._is_running:
            self._is_running = True
            self._dependencies.timer.call_soon(self._slice)

    def cancel(self) -> None:
        """Stop reading and writing; no callback follows."""
        self._is_cancelled = True

    def _slice(self) -> None:
        if self._is_cancelled:
            return
        try:
            self._follow_truncations()
            self._follow_start()
            while self._is_behind():
                if self._throttle.is_exceeded:
                    self._dependencies.timer.call_later(_THROTTLED_MS, self._slice)
                    return
                records = self._read()
                if isinstance(records, FileSlice) and len(records) > _LAST_BYTES:
                    self._read_later(records)
                    return
                self._append(records.read() if isinstance(records, FileSlice) else records)
            self._follow_start()
        except (StorageError, OSError, CorruptBatchError) as error:
            self._fail(error)
            return
        self._is_running = False
        self._on_caught_up()

    def _is_behind(self) -> bool:
        return self.future.log_end_offset < self.source.log_end_offset

    def _read(self) -> FileSlice | bytes:
        offset = max(self.future.log_end_offset, self.source.local_log_start_offset)
        read = self.source.reader.read(offset, _SLICE_BYTES, FetchIsolation.LOG_END, True)
        records = read.records
        assert isinstance(records, FileSlice | bytes)
        return records

    def _read_later(self, records: FileSlice) -> None:
        path, position, size = records.file.path, records.position, records.length
        disk = self._dependencies.disk

        def done(data: bytes | None, error: BaseException | None) -> None:
            if self._is_cancelled:
                return
            if isinstance(error, FileNotFoundError):
                # Retention or a truncation deleted the segment; the next slice begins elsewhere.
                self._dependencies.timer.call_later(_RETRY_MS, self._slice)
                return
            try:
                if isinstance(error, OSError):
                    raise error
                assert data is not None
                self._append(data)
            except (StorageError, OSError, CorruptBatchError) as failure:
                self._fail(failure)
                return
            self._dependencies.timer.call_soon(self._slice)

        self._dependencies.executor.submit(lambda: _read_file(disk, path, position, size), done)

    def _append(self, data: bytes) -> None:
        """Append the whole batches; the next slice applies truncations of the source."""
        end, first = 0, -1
        for position, header in batches(data):
            first = header.base_offset if first < 0 else first
            end = position + header.size
        if not end:
            raise CorruptRecordError(f"{self.source.directory}: no whole batch to copy")
        if first < self.future.log_end_offset and not self.future.size:
            # The log begins within a batch: its first records were deleted.
            self.future.truncate_fully_and_start_at(first)
        self.future.appender.append_as_follower(data[:end])
        self._throttle.record(end)

    def _follow_start(self) -> None:
        start, local_start = self.source.log_start_offset, self.source.local_log_start_offset
        # The source's start moves back if a power loss loses its checkpoint.
        if local_start > self.future.log_end_offset or start < self.future.log_start_offset:
            self._restart()
        self.future.update_high_watermark(self.source.high_watermark)
        reached = min(start, self.future.high_watermark)
        if reached > self.future.log_start_offset:
            self.future.maybe_increment_log_start_offset(reached, "the log start of its source")

    def _restart(self) -> None:
        """Begin the replica again, where the local records of its source begin."""
        source, offset = self.source, self.source.local_log_start_offset
        if offset == source.log_start_offset:
            self.future.truncate_fully_and_start_at(offset)
            return
        epochs = source.leader_epochs.entries_until(offset)
        snapshot = source.producer_state.read_snapshot(offset)
        self.future.adopt_auxiliary_state(offset, source.log_start_offset, epochs, snapshot)

    def _follow_truncations(self) -> None:
        """Truncate the future replica to the last common offset, by leader epochs (KIP-101)."""
        if self._truncation_count == self.source.sync.truncation_count:
            return
        self._truncation_count = self.source.sync.truncation_count
        future, source = self.future, self.source
        while future.log_end_offset > future.local_log_start_offset:
            epoch = future.latest_epoch
            if epoch is None:
                future.truncate_to(min(future.log_end_offset, source.log_end_offset))
                return
            known, end = source.end_offset_for_epoch(epoch)
            if known < 0:
                self._restart()
                return
            future.truncate_to(min(end, future.log_end_offset))
            if known == epoch or future.latest_epoch == epoch:
                return

    def _fail(self, error: BaseException) -> None:
        self._is_cancelled = True
        if not isinstance(error, StorageError):
            error = CorruptRecordError(f"{self.source.directory}: {error}")
        self._on_failed(error)


def _read_file(disk: Disk, path: str, position: int, size: int) -> bytes:
    """Read a range on any thread, with a separate descriptor, since the log may close its own."""
    file = disk.open(path, create=False)
    try:
        return file.read_at(size, position)
    finally:
        file.close()
