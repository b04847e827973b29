"""Replays a state partition into a shard, in slices between other work of the event loop.

A client can write to the partition (Apache Kafka allows this for the client id `__admin_client`),
and a disk can damage it. So the loader skips, logs and counts unreadable records, and loads the
rest. A batch that may be large is decompressed off the event loop.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING

from barnabas.metrics.registry import MetricFamily
from barnabas.protocol.errors import ProtocolError
from barnabas.record.batch import NO_PRODUCER_ID, ControlType, batches, check_crc
from barnabas.record.compression import NONE, decompressed_bytes_max
from barnabas.record.reader import decoded_records, records_payload
from barnabas.record.record import CorruptBatchError
from barnabas.storage.errors import CorruptRecordError, StorageError, TooManyOpenFilesError
from barnabas.storage.producers.producer_entry import read_end_marker
from barnabas.storage.results import FetchIsolation
from barnabas.waiting.steps import OffLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.coordinator.runtime.shard import Shard
    from barnabas.metrics.measurements import SampledValues
    from barnabas.record.batch import BatchHeader
    from barnabas.record.record import Record
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.executor import Executor
    from barnabas.storage.log.log import Log
    from barnabas.waiting.steps import Steps


_log = logging.getLogger(__name__)


# Bytes per read, and records per slice: a thousand committed offsets take some milliseconds.
_READ_BYTES = 1 << 16
_SLICE_RECORDS = 1_000
# Limit for decompression on the event loop, which takes a few milliseconds.
_ON_LOOP_BYTES_MAX = 1 << 20
# Number of skipped records that are logged individually. All others are only counted.
_LOGGED_SKIPS_MAX = 10
# Delay before a retry if no file could be opened, in ms.
_RETRY_MS = 1_000


class Loader:
    """Replays a log from its start to its end, one slice per turn of the event loop."""

    __slots__ = (
        "_cancelled",
        "_executor",
        "_log",
        "_offset",
        "_on_done",
        "_read_records",
        "_shard",
        "_slices",
        "_timer",
        "skips",
    )

    def __init__(
        self,
        log: Log,
        shard: Shard,
        timer: Timer,
        executor: Executor,
        on_done: Callable[[bool], None],
    ) -> None:
        self._executor = executor
        # Number of records that were read. Decides when a slice ends.
        self._read_records = 0
        self._log = log
        self._shard = shard
        self._timer = timer
        # Called once with whether the whole log was read, unless the loader is canceled.
        self._on_done = on_done
        # The next offset to replay. Only increases.
        self._offset = log.log_start_offset
        self._slices = self._replay()
        self._cancelled = False
        # Number of skipped records. A damaged batch counts as one.
        self.skips = 0

    def start(self) -> None:
        """Start in the next turn."""
        self._timer.call_soon(self._slice)

    def cancel(self) -> None:
        """Stop, since this broker no longer leads the partition in this epoch."""
        self._cancelled = True

    def _slice(self, result: object = None, failure: BaseException | None = None) -> None:
        """Run one slice.

        Args:
            result: the result of the off-loop work that the last slice requested.
            failure: the exception of that work.
        """
        if self._cancelled:
            return
        try:
            requested = (
                self._slices.send(result) if failure is None else self._slices.throw(failure)
            )
        except StopIteration:
            self._report_skips()
            self._on_done(True)
        except TooManyOpenFilesError:
            # The log is intact: start a new generator, since the old one has ended, and retry.
            self._slices = self._replay()
            self._timer.call_later(_RETRY_MS, self._slice)
        except (StorageError, CorruptBatchError, OSError) as error:
            _log.error("Cannot read a coordinator partition: %s error=%s", self._where(), error)
            self._on_done(False)
        except Exception:  # noqa: BLE001 - logged, and the partition is marked as failed
            # Any log content may cause the error: fail this partition only.
            _log.exception("Cannot load a coordinator partition: %s", self._where())
            self._on_done(False)
        else:
            if requested is None:
                self._timer.call_soon(self._slice)
            else:
                self._executor.submit(requested.work, self._slice)

    def _replay(self) -> Steps:
        """Replay the whole log. Yield between slices."""
        while self._offset < self._log.log_end_offset:
            before = self._offset
            content = self._read()
            for position, header in batches(content):
                # The first batch of a read may lie below the offset.
                if header.next_offset <= self._offset:
                    continue
                yield from self._replay_batch(content, position, header)
                self._offset = header.next_offset
            if self._offset == before:
                return
            self._commit(self._offset)
            yield None

    def _read(self) -> bytes:
        result = self._log.reader.read(self._offset, _READ_BYTES, FetchIsolation.LOG_END, True)
        return result.content()

    def _replay_batch(self, content: bytes, position: int, header: BatchHeader) -> Steps:
        """Replay one batch. Yield after each 1000th record."""
        try:
            if not check_crc(content, position, header):
                raise CorruptBatchError("the CRC of the batch is wrong")
            if header.is_control:
                self._replay_end_marker(memoryview(content)[position:], header)
                return
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            payload: memoryview
            if _may_be_large(header):
                payload = yield OffLoop(partial(records_payload, content, position, header))
            else:
                payload = records_payload(content, position, header)
            last_offset = header.base_offset - 1
            # Decode the records one by one, since a compressed batch may have any number of them.
            for record in decoded_records(payload, header):
                if not last_offset < record.offset <= header.last_offset:
                    # The log checks the offsets of batches, not those of their records.
                    reason = f"its offset is not between {last_offset} and {header.next_offset}"
                    self._skip(record.offset, CorruptBatchError(reason))
                else:
                    last_offset = record.offset
                    self._replay_record(record, producer_id)
                self._read_records += 1
                if self._read_records % _SLICE_RECORDS == 0:
                    self._commit(last_offset + 1)
                    yield None
        except (CorruptBatchError, CorruptRecordError) as error:
            self._skip(header.base_offset, error)

    def _commit(self, end_offset: int) -> None:
        """Commit what was replayed, up to the high watermark.

        Otherwise the first commit after the loading would be a long turn of the event loop. Reads
        are refused until then.
        """
        self._shard.commit(min(end_offset, self._log.high_watermark))

    def _replay_record(self, record: Record, producer_id: int) -> None:
        # The first batch of the log may begin below the log start offset.
        if record.offset < self._offset or record.key is None:
            return
        try:
            self._shard.replay(record.offset, record.key, record.value, producer_id)
        except ProtocolError as error:
            self._skip(record.offset, error)

    def _replay_end_marker(self, batch: memoryview, header: BatchHeader) -> None:
        marker = read_end_marker(batch, header)
        if marker is not None:
            is_commit = marker.control_type is ControlType.COMMIT
            self._shard.replay_end_marker(header.base_offset, header.producer_id, is_commit)

    def _skip(self, offset: int, error: Exception) -> None:
        self.skips += 1
        if self.skips <= _LOGGED_SKIPS_MAX:
            _log.error(
                "Skipped a damaged record of a coordinator partition: partition=%s "
                "offset=%d error=%s",
                self._log.topic_partition,
                offset,
                error,
            )

    def _report_skips(self) -> None:
        if self.skips > _LOGGED_SKIPS_MAX:
            _log.error(
                "Skipped damaged records of a coordinator partition: partition=%s count=%d",
                self._log.topic_partition,
                self.skips,
            )

    def _where(self) -> str:
        return f"partition={self._log.topic_partition} offset={self._offset}"


def _may_be_large(header: BatchHeader) -> bool:
    """Return whether the batch may be too large to decompress on the event loop."""
    if header.compression == NONE:
        return False
    return decompressed_bytes_max(header.compression, header.size) > _ON_LOOP_BYTES_MAX


def load_time_families(
    load_times: SampledValues, now_ms: float, called: tuple[str, str]
) -> Iterator[MetricFamily]:
    """Yield the average and the maximum of the last minute; NaN if nothing was loaded.

    Args:
        load_times: the durations of loading, in ms.
        now_ms: the monotonic clock.
        called: the names of the average and of the maximum.
    """
    for name, value in zip(
        called, (load_times.average(now_ms), load_times.maximum(now_ms)), strict=True
    ):
        yield MetricFamily(name, [((), math.nan if value is None else value)])
