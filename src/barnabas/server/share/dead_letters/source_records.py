"""Reads the keys and values of records that a dead-letter topic gets (KIP-1191)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import HEADER, HEADER_SIZE, made_header
from barnabas.record.columns import record_slices, uncompressed
from barnabas.record.compression import NONE, decompressed_bytes_max
from barnabas.record.record import CorruptBatchError
from barnabas.replication.partition.fetch_params import (
    CONSUMER_REPLICA_ID,
    FetchParams,
    FetchPartitionData,
)
from barnabas.runtime.disk import FileSlice
from barnabas.storage.errors import StorageError
from barnabas.storage.results import FetchIsolation
from barnabas.storage.segment.batch_scan import headers
from barnabas.waiting.off_loop import OffLoop

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.record.compiled import CompiledRecord
    from barnabas.replication.partition.results import FetchResult
    from barnabas.storage.topic_partition import TopicIdPartition

    Batches = Iterator[tuple[BatchHeader, bytes]]
    Reading = Generator[OffLoop | None, Any, None]

_log = logging.getLogger(__name__)

_FAILED = "Records cannot be copied to a dead-letter topic: partition=%s error=%s"
# Maximum size of one read of the log, in bytes. A read returns at least one batch.
READ_BYTES_MAX = 1 << 20
# Fetch version whose byte limits do not truncate the first batch.
_VERSION = 17


class SourceLog(Protocol):
    """Reads partitions that this broker leads."""

    def read(
        self, params: FetchParams, partitions: list[tuple[TopicIdPartition, FetchPartitionData]]
    ) -> list[tuple[TopicIdPartition, FetchResult]]:
        """Read in order within the byte limit."""
        ...


class SourceRecords:
    """The contents of consecutive records, as far as they can be read.

    Records that compaction or retention has removed, and damaged records, have no contents.
    """

    __slots__ = ("_bytes", "_bytes_max", "_contents", "_first", "_last", "_log", "_where", "last")

    def __init__(
        self, log: SourceLog, where: TopicIdPartition, offsets: tuple[int, int], bytes_max: int
    ) -> None:
        """Create without contents.

        Args:
            log: reads the partition.
            where: the partition.
            offsets: first and last offset of the records.
            bytes_max: stop after a record with which the contents reach this size.
        """
        self._log = log
        self._where = where
        self._first, self._last = offsets
        self._bytes_max = bytes_max
        self._bytes = 0
        # Key and value by offset.
        self._contents: dict[int, tuple[bytes | None, bytes | None]] = {}
        # Last offset that was looked at. Later records are read when their turn comes.
        self.last = offsets[1]

    def content(self, offset: int) -> tuple[bytes | None, bytes | None]:
        """Return key and value of a record; None for both if it cannot be read."""
        return self._contents.get(offset, (None, None))

    def read(self) -> Reading:
        """Read the records in steps. Failures are logged."""
        try:
            offset = self._first
            while offset <= self._last:
                following = yield from self._read_from(offset)
                if self._bytes >= self._bytes_max:
                    self.last = max(self._first, following - 1)
                    return
                if following <= offset:
                    return
                offset = following
        except (StorageError, CorruptBatchError) as error:
            _log.warning(_FAILED, self._where.topic_partition, error)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - a damaged log must not stop the writer
            _log.exception("Unexpected error: partition=%s", self._where.topic_partition)

    def _read_from(self, offset: int) -> Generator[OffLoop | None, Any, int]:
        """Read some batches. Return the next offset to read, or `offset` at the end of the log."""
        params = FetchParams(
            version=_VERSION,
            replica_id=CONSUMER_REPLICA_ID,
            replica_epoch=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=READ_BYTES_MAX,
            isolation=FetchIsolation.HIGH_WATERMARK,
        )
        ((_, result),) = self._log.read(
            params, [(self._where, FetchPartitionData(offset, READ_BYTES_MAX))]
        )
        if result.error is not ErrorCode.NONE:
            _log.warning(_FAILED, self._where.topic_partition, result.error.name)
            return offset
        for header, batch in _batches(result.records):
            if header.base_offset > self._last:
                return self._last + 1
            if not header.is_control:
                yield from self._take_batch(header, batch)
            offset = max(offset, header.last_offset + 1)
            if self._bytes >= self._bytes_max:
                return self._last_taken() + 1
        return offset

    def _last_taken(self) -> int:
        return max(self._contents, default=self._first)

    def _take_batch(self, header: BatchHeader, batch: bytes) -> Reading:
        whole: Buffer = batch
        if header.compression != NONE:
            # A record may be as large as its batch, and its content is a copy.
            bytes_max = 2 * decompressed_bytes_max(header.compression, len(batch))
            work = partial(uncompressed, batch, 0, header)
            whole = yield OffLoop(work, bytes_max, lambda made: 2 * len(made))
        for records in record_slices(whole, header):
            if self._take_records(records):
                return
            yield None

    def _take_records(self, records: Sequence[CompiledRecord]) -> bool:
        """Keep the contents of records in the range. Return whether no more are needed."""
        for record in records:
            if record.offset > self._last:
                return True
            if record.offset < self._first:
                continue
            self._contents[record.offset] = (record.key, record.value)
            self._bytes += len(record.key or b"") + len(record.value or b"")
            if self._bytes >= self._bytes_max:
                return True
        return False


def _batches(records: FileSlice | bytes) -> Batches:
    """Yield the whole batches of a read."""
    if isinstance(records, FileSlice):
        end = records.position + records.length
        for position, header in headers(records.file, records.position, end):
            yield header, records.file.read_at(header.size, position)
        return
    position = 0
    while len(records) - position >= HEADER_SIZE:
        header = made_header(HEADER.unpack_from(records, position))
        if header.size > len(records) - position:
            return
        yield header, records[position : position + header.size]
        position += header.size
