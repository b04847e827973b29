"""Reading a state partition into a shard, in slices, so that the loop goes on in between."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.protocol_error import ProtocolError
from barnabas.record.errors import CorruptBatchError
from barnabas.record.reader import read_batches
from barnabas.storage.errors import StorageError
from barnabas.storage.read_result import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.shard import Shard
    from barnabas.runtime.timer import Timer
    from barnabas.storage.log import Log

_log = logging.getLogger(__name__)

# About a thousand committed offsets, some milliseconds of work.
_SLICE_BYTES = 1 << 16


class Loader:
    """Replays a log from its start to its end, one slice per turn of the loop."""

    __slots__ = ("_cancelled", "_log", "_offset", "_on_done", "_shard", "_timer")

    def __init__(
        self, log: Log, shard: Shard, timer: Timer, on_done: Callable[[bool], None]
    ) -> None:
        self._log = log
        self._shard = shard
        self._timer = timer
        # Called once with whether all went well, unless cancelled.
        self._on_done = on_done
        self._offset = log.log_start_offset
        self._cancelled = False

    def start(self) -> None:
        """Begin in the next turn."""
        self._timer.call_soon(self._slice)

    def cancel(self) -> None:
        """Somebody else leads by now."""
        self._cancelled = True

    def _slice(self) -> None:
        if self._cancelled:
            return
        try:
            before = self._offset
            if before < self._log.log_end_offset:
                self._replay_slice()
            is_done = self._offset >= self._log.log_end_offset or self._offset == before
        except (StorageError, ProtocolError, CorruptBatchError, OSError) as error:
            _log.error("cannot load %s: %s", self._log.topic_partition, error)
            self._on_done(False)
            return
        if is_done:
            self._on_done(True)
        else:
            self._timer.call_soon(self._slice)

    def _replay_slice(self) -> None:
        result = self._log.read(self._offset, _SLICE_BYTES, FetchIsolation.LOG_END, True)
        records = result.records
        content = records if isinstance(records, bytes) else records.read()
        for header, decoded in read_batches(content):
            # The batch that holds the offset may begin before it.
            if header.next_offset <= self._offset:
                continue
            if not header.is_control:
                for record in decoded:
                    if record.offset >= self._offset and record.key is not None:
                        self._shard.replay(record.offset, record.key, record.value)
            self._offset = header.next_offset
