"""Dead-letter records: their content, their batches and the requests with them (KIP-1191).

A dead-letter record describes a record that a share group gives up. It has the key and the value of
this record if the group asks for copies.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.record.batch import HEADER, HEADER_SIZE, made_header
from barnabas.record.builder import BatchBuilder
from barnabas.record.columns import record_slices, uncompressed
from barnabas.record.compression import NONE, decompressed_bytes_max
from barnabas.record.record import CorruptBatchError
from barnabas.replication.partition.fetch_params import (
    CONSUMER_REPLICA_ID,
    FetchParams,
    FetchPartitionData,
)
from barnabas.runtime.disk import FileSlice
from barnabas.server.share.group_settings import ENABLED
from barnabas.storage.errors import StorageError
from barnabas.storage.results import FetchIsolation
from barnabas.storage.segment.batch_scan import headers
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import OffLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.record.compiled import CompiledRecord
    from barnabas.replication.partition.results import FetchResult
    from barnabas.server.share.group_settings import DeadLetterSettings
    from barnabas.storage.topic_partition import TopicIdPartition

    Batches = Iterator[tuple[BatchHeader, bytes]]
    Reading = Generator[OffLoop | None, Any, None]


_log = logging.getLogger(__name__)

# Index of the offset in the headers.
OFFSET_INDEX = 2
OFFSET_HEADER = "__dlq.errors.offset"
_REJECTED = b"Offset rejected by client."
_DELIVERED_TOO_OFTEN = b"Offset delivery count exceeded the threshold."


class DeadLetter(msgspec.Struct, frozen=True):
    """Consecutive records of a partition that a group gives up for one reason."""

    group_id: str
    # The partition of the records.
    where: TopicIdPartition
    # Offsets of the records, both inclusive.
    first: int
    last: int
    delivery_count: int
    # Whether a member has rejected the records. Otherwise they were delivered too often.
    is_rejected: bool

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers of a dead-letter record without a value of the offset."""
        return [
            ("__dlq.errors.topic", self.where.topic.encode()),
            ("__dlq.errors.partition", str(self.where.partition).encode()),
            (OFFSET_HEADER, None),
            ("__dlq.errors.group", self.group_id.encode()),
            ("__dlq.errors.delivery.count", str(self.delivery_count).encode()),
            ("__dlq.errors.message", _REJECTED if self.is_rejected else _DELIVERED_TOO_OFTEN),
        ]


class PendingLetter:
    """A dead letter, how much of it is written, and the failed attempts."""

    __slots__ = ("letter", "next_offset", "on_done", "retries", "sent_last", "target")

    def __init__(self, letter: DeadLetter, on_done: Callable[[], None]) -> None:
        self.letter = letter
        # Called once, after the last record is written or the write is given up.
        self.on_done = on_done
        # First offset that is not in the dead-letter topic. Only increases.
        self.next_offset = letter.first
        # Last offset in the request that is built or in flight. Set by each attempt.
        self.sent_last = letter.first
        # Consecutive failed attempts. Reset by a success.
        self.retries = 0
        # Partition of the dead-letter topic. Set by each attempt.
        self.target = TopicPartition("", -1)


# Number of partitions or replicas that the controller replaces by its default.
_DEFAULT = -1
# Size at which a batch gets no more records, even if the topic accepts larger batches.
_BATCH_BYTES_MAX = 1 << 20
# Maximum size of all batches of a request, except that the first record always fits.
_REQUEST_BYTES_MAX = 4 << 20
# Records per step of the work.
_RECORDS_PER_STEP = 64


def create_request(topic: str, timeout_ms: int) -> CreateTopicsRequest:
    """Return the request that creates a dead-letter topic.

    The records have the time of the write as their timestamp, whatever the broker's default is.
    """
    configs = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=_DEFAULT,
                replication_factor=_DEFAULT,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
                ],
            )
        ],
        timeout_ms=timeout_ms,
        validate_only=False,
    )


class DeadLetterBatches:
    """Batches by partition of dead-letter topics, each with records of one or more letters."""

    __slots__ = ("_builders", "_log", "_now_ms", "_settings", "deferred")

    def __init__(
        self, settings: DeadLetterSettings, log: SourceLog, now_ms: Callable[[], int]
    ) -> None:
        """Create without records.

        Args:
            settings: the configs of groups and topics.
            log: reads the records that are copied.
            now_ms: returns the wall-clock time, the timestamp of the records.
        """
        self._settings = settings
        self._log = log
        self._now_ms = now_ms
        self._builders: dict[TopicPartition, BatchBuilder] = {}
        # Letters that do not fit.
        self.deferred: list[PendingLetter] = []

    def build(
        self, letters: Iterable[PendingLetter]
    ) -> Generator[OffLoop | None, Any, DeadLetterBatches]:
        """Add letters in steps, until the request is full."""
        for pending in letters:
            if sum(each.estimated_size for each in self._builders.values()) >= _REQUEST_BYTES_MAX:
                self.deferred.append(pending)
                continue
            yield from self._add(pending)
        return self

    def content(self) -> dict[TopicPartition, bytearray]:
        """Return the batches."""
        return {key: builder.build() for key, builder in self._builders.items()}

    def _add(self, pending: PendingLetter) -> Generator[OffLoop | None, Any, None]:
        letter, offset = pending.letter, pending.next_offset
        limit = min(_BATCH_BYTES_MAX, self._settings.max_bytes(pending.target.topic))
        builder = self._builders.get(pending.target)
        if builder is None:
            builder = self._builders[pending.target] = BatchBuilder(max_bytes=limit)
        elif builder.estimated_size >= limit:
            self.deferred.append(pending)
            return
        source, last = None, letter.last
        if self._settings.copies_records(letter.group_id):
            source = SourceRecords(self._log, letter.where, (offset, last), limit)
            yield from source.read()
            last = source.last
        headers, added = letter.headers(), pending.next_offset - 1
        for offset in range(pending.next_offset, last + 1):
            key, value = (None, None) if source is None else source.content(offset)
            headers[OFFSET_INDEX] = (OFFSET_HEADER, str(offset).encode())
            if builder.append(self._now_ms(), key, value, headers) is None:
                break
            added = offset
            if offset % _RECORDS_PER_STEP == 0:
                yield None
        if added < pending.next_offset:
            self.deferred.append(pending)
        else:
            pending.sent_last = added


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


def _batches(records: FileSlice | bytes | memoryview) -> Batches:
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
        yield header, bytes(records[position : position + header.size])
        position += header.size
