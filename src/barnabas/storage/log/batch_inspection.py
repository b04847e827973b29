"""Inspection of the records in a producer's batches (per-record part of Kafka's LogValidator).

The records of every producer's batch are read, because a malformed record stops the readers of its
partition. The largest timestamp in the header is what the producer says, so it is corrected: the
time index, retention and the rolling of segments use it. `validator` handles the common case; all
other batches are inspected here. A batch of a few kilobytes can decompress to millions of records.
So the inspection is a generator that yields between slices of records and requests long compression
calls off the loop.

The limits of a batch are checked here too: as sent, as stored, and decompressed.
`InspectedRecords` is the result of a successful validation, before the log assigns offsets.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.record.batch import (
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    batches,
    read_header,
    set_crc,
    set_max_timestamp,
)
from barnabas.record.columns import record_slices, uncompressed
from barnabas.record.compression import (
    CODES,
    DECOMPRESSED_BYTES_MAX,
    GZIP,
    LZ4,
    NONE,
    ZSTD,
    compress,
    decompressed_bytes_max,
)
from barnabas.record.producer_records import bounded_slices, largest_timestamp
from barnabas.record.record import CorruptBatchError, DecompressedTooLargeError
from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from barnabas.storage.results import AppendOrigin
from barnabas.waiting.steps import OffLoop, run_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.record.compiled import CompiledRecord
    from barnabas.storage.config import LogConfig


# Every batch may decompress to this size.
_DECOMPRESSED_BYTES_MIN = 4 << 20
# A batch may also decompress to this multiple of its size. The maximum ratio of gzip is 1032. The
# ratio of zstd can be 30,000, so a request of 4 KB could cost 128 MiB and 19 million records.
_DECOMPRESSED_RATIO_MAX = 1032


def too_large_batch(header: BatchHeader, config: LogConfig) -> RecordTooLargeError:
    """Return the error for a batch that exceeds `max.message.bytes`."""
    limit = config.max_message_bytes
    return RecordTooLargeError(f"a batch has {header.size} bytes, max.message.bytes is {limit}")


def decompressed_limit(header: BatchHeader, config: LogConfig) -> int:
    """Return the maximum decompressed size of the records in a producer's batch."""
    by_size = max(
        _DECOMPRESSED_BYTES_MIN, config.max_message_bytes, header.size * _DECOMPRESSED_RATIO_MAX
    )
    return min(config.max_decompressed_message_bytes, DECOMPRESSED_BYTES_MAX, by_size)


# Position and header of each batch.
Batches: TypeAlias = "list[tuple[int, BatchHeader]]"


class InspectedRecords(NamedTuple):
    """Batches that were validated and converted to the topic's format."""

    content: memoryview
    batches: Batches

    @property
    def nbytes(self) -> int:
        """Size of the batches in bytes."""
        return self.content.nbytes


# Batches as sent by the client, or batches after their validation.
LeaderRecords: TypeAlias = memoryview | InspectedRecords
# A client's batch for a joint append, and its header after the validation.
JoinedBatch: TypeAlias = "tuple[memoryview, BatchHeader]"


# Maximum bytes decompressed on the loop: for records in the receive buffer, and for a kept copy.
_FIRST_BYTES = 64 << 10
_INLINE_BYTES = 1 << 20
# Maximum bytes compressed on the loop; gzip needs 0.5 ms for them.
_COMPRESSED_INLINE_BYTES = 16 << 10
# Maximum number of invalid records in an error. Kafka reports all of them.
RECORD_ERRORS_MAX = 1000

_NO_KEY = "a compacted topic requires a key for each record"
_KEPT_FLAGS = TRANSACTIONAL_FLAG
# The earliest and the latest timestamp that a record can have.
_ANY_TIMES = (-LONG_MAX - 1, LONG_MAX)

_offset_of = attrgetter("offset")
_key_of = attrgetter("key")
_timestamp_of = attrgetter("timestamp")


class Inspection:
    """Inspection of the batches of one leader append."""

    __slots__ = (
        "_config",
        "_found",
        "_is_kept",
        "_now_ms",
        "_origin",
        "_records",
    )

    def __init__(
        self,
        records: memoryview,
        found: Batches,
        config: LogConfig,
        origin: AppendOrigin,
        now_ms: int,
    ) -> None:
        """Create the inspection.

        Args:
            records: a writable buffer.
            found: positions and headers of batches with valid headers and checksums.
        """
        self._records = records
        self._found = found
        self._config = config
        self._origin = origin
        self._now_ms = now_ms
        # Whether `records` is a copy that this object owns.
        self._is_kept = False

    def __len__(self) -> int:
        """Return the size of the batches as received, in bytes."""
        return len(self._records)

    def begin(self) -> InspectedRecords | None:
        """Inspect if one step suffices; else return None with nothing changed.

        Raises:
            StorageError: the records are invalid.
        """
        steps = self.steps()
        try:
            next(steps)
        except StopIteration as end:
            done: InspectedRecords = end.value
            return done
        # Release the views of the receive buffer.
        steps.close()
        return None

    def run(self) -> InspectedRecords:
        """Inspect in one turn, however long it takes.

        Raises:
            StorageError: the records are invalid.
        """
        self._is_kept = True
        done: InspectedRecords = run_steps(self.steps())
        return done

    def copy_records(self) -> None:
        """Copy the records, because the connection reuses its receive buffer."""
        self._records = memoryview(bytearray(self._records))
        self._is_kept = True

    def outcome(self) -> Generator[OffLoop | None, Buffer, InspectedRecords | Exception]:
        """Run `steps`, but return an error instead of raising it."""
        try:
            return (yield from self.steps())
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - the append fails with any error, also MemoryError
            return error

    def steps(self) -> Generator[OffLoop | None, Buffer, InspectedRecords]:
        """Inspect and convert the batches; each step takes about a millisecond.

        Raises:
            InvalidRecordError: a record is malformed or lacks a key.
            InvalidTimestampError: a timestamp is out of range, or the type is not allowed.
            RecordTooLargeError: a recompressed batch exceeds max.message.bytes.
        """
        parts: list[Buffer] = []
        is_rebuilt = False
        for position, header in self._found:
            batch = self._records[position : position + header.size]
            made = yield from self._inspected(batch, header)
            is_rebuilt = is_rebuilt or made is not None
            parts.append(batch if made is None else made)
        if not is_rebuilt:
            records = self._records
            return InspectedRecords(
                records, [(position, read_header(records, position)) for position, _ in self._found]
            )
        content = memoryview(parts[0] if len(parts) == 1 else bytearray().join(parts))
        return InspectedRecords(content, list(batches(content)))

    # Steps of one batch.

    def _inspected(
        self, batch: memoryview, header: BatchHeader
    ) -> Generator[OffLoop | None, Buffer, bytearray | None]:
        """Change the batch in place and return None, or return a new batch."""
        config = self._config
        target = CODES.get(config.compression_type, header.compression)
        if config.compression_type == "uncompressed":
            target = NONE
        made: bytearray | None = None
        largest: int | None = None
        if not header.is_control and self._needs_records(header, target):
            whole = yield from self._uncompressed(batch, header, target)
            scan = _RecordScan(header, config, self._origin, self._now_ms)
            yield from scan.through(whole)
            if header.has_log_append_time and self._has_time_of_append:
                raise _refused_claim(header)
            largest = scan.largest
            if header.compression != target:
                made = yield from self._rebuilt(whole, header, target, largest)
        if self._has_time_of_append:
            set_max_timestamp(batch if made is None else made, 0, LOG_APPEND_TIME, self._now_ms)
        elif largest is not None and made is None and self._origin is not AppendOrigin.RAFT:
            set_max_timestamp(batch, 0, CREATE_TIME, largest)
        return made

    @property
    def _has_time_of_append(self) -> bool:
        return self._config.has_log_append_time and self._origin is not AppendOrigin.RAFT

    def _needs_records(self, header: BatchHeader, target: int) -> bool:
        if self._origin is AppendOrigin.CLIENT or header.compression != target:
            return True
        return self._origin is not AppendOrigin.RAFT and header.has_log_append_time

    def _uncompressed(
        self, batch: memoryview, header: BatchHeader, target: int
    ) -> Generator[OffLoop | None, Buffer, Buffer]:
        limit = decompressed_limit(header, self._config)
        at_once = _INLINE_BYTES if self._is_kept else _FIRST_BYTES
        try:
            try:
                return uncompressed(batch, 0, header, min(limit, at_once))
            except DecompressedTooLargeError:
                if limit <= at_once:
                    raise
            work = partial(uncompressed, batch, 0, header, limit)
            bytes_max = decompressed_bytes_max(header.compression, len(batch), limit)
            # A batch with another compression is built beside the decompressed one.
            copies = 1 if header.compression == target else 2
            return (yield OffLoop(work, copies * bytes_max, lambda whole: copies * len(whole)))
        except CorruptBatchError as error:
            raise InvalidRecordError(str(error)) from None

    def _check_size(self, header: BatchHeader) -> None:
        if header.batch_length + LOG_OVERHEAD > self._config.max_message_bytes:
            raise too_large_batch(header, self._config)

    def _rebuilt(
        self, whole: Buffer, header: BatchHeader, target: int, largest: int
    ) -> Generator[OffLoop | None, Buffer, bytearray]:
        """Return the batch with another compression; its records are not encoded again."""
        payload = memoryview(whole)[HEADER_SIZE:]
        content: Buffer = payload
        if target == NONE:
            self._check_size(header._replace(batch_length=len(whole) - LOG_OVERHEAD))
        else:
            work = partial(compress, target, payload, _level(target, self._config))
            if len(payload) <= _COMPRESSED_INLINE_BYTES:
                content = work()
            else:
                content = yield OffLoop(work)
        changed = header._replace(
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(content),
            attributes=header.attributes & _KEPT_FLAGS | target,
            max_timestamp=largest,
        )
        self._check_size(changed)
        made = bytearray(HEADER_SIZE)
        HEADER.pack_into(made, 0, *changed)
        made += content
        set_crc(made, 0, len(made))
        return made


class _RecordScan:
    """Checks on the records of one batch."""

    __slots__ = (
        "_config",
        "_has_oldest",
        "_header",
        "_keyless",
        "_latest",
        "_needs_keys",
        "_oldest",
        "_out_of_range",
        "_seen",
        "largest",
    )

    def __init__(
        self, header: BatchHeader, config: LogConfig, origin: AppendOrigin, now_ms: int
    ) -> None:
        self._config = config
        self._header = header
        is_client = origin is AppendOrigin.CLIENT
        self._needs_keys = is_client and config.is_compacted
        self._oldest, self._latest = _ANY_TIMES
        if not config.has_log_append_time and origin is not AppendOrigin.RAFT:
            self._latest = now_ms + config.message_timestamp_after_max_ms
            if is_client and config.message_timestamp_before_max_ms != LONG_MAX:
                self._oldest = now_ms - config.message_timestamp_before_max_ms
        self._has_oldest = self._oldest != _ANY_TIMES[0]
        # Number of records read so far.
        self._seen = 0
        # The largest timestamp so far.
        self.largest = NO_TIMESTAMP
        self._keyless: list[tuple[int, str]] = []
        self._out_of_range: list[tuple[int, str]] = []

    def through(self, whole: Buffer) -> Generator[None, None, None]:
        """Read and check all records.

        Raises:
            InvalidRecordError: a record is malformed or lacks a key.
            InvalidTimestampError: a timestamp is out of range.
        """
        header = self._header
        if not self._needs_keys and not self._has_oldest and not header.has_log_append_time:
            largest = largest_timestamp(memoryview(whole), header)
            if largest is not None and largest <= self._latest:
                self.largest = max(self.largest, largest)
                return
        try:
            for part in record_slices(whole, header, bounded_slices(whole, header)):
                self._take(part)
                if self._seen < header.record_count:
                    yield
        except CorruptBatchError as error:
            raise InvalidRecordError(str(error)) from None
        self._raise_faults()

    def _take(self, part: Sequence[CompiledRecord]) -> None:
        first = self._seen
        self._seen = end = first + len(part)
        base = self._header.base_offset
        if list(map(_offset_of, part)) != list(range(base + first, base + end)):
            raise InvalidRecordError(
                f"the offsets of records {first} to {end - 1} are not in order"
            )
        if self._needs_keys and None in map(_key_of, part):
            self._keyless += [
                (index, _NO_KEY) for index, record in enumerate(part, first) if record.key is None
            ]
        times: Sequence[int] = list(map(_timestamp_of, part))
        if None in times:
            # The compiled reader returns None for timestamp -1.
            times = [at for at in times if at is not None]
        if times:
            latest = max(times)
            self.largest = max(self.largest, latest)
            if latest > self._latest or (self._has_oldest and min(times) < self._oldest):
                self._record_times(part, first)
        if max(len(self._keyless), len(self._out_of_range)) >= RECORD_ERRORS_MAX:
            self._raise_faults()

    def _record_times(self, part: Sequence[CompiledRecord], first: int) -> None:
        for index, record in enumerate(part, first):
            at = record.timestamp
            if at is None or at == NO_TIMESTAMP or self._oldest <= at <= self._latest:
                continue
            words = f"timestamp {at} is not within {self._oldest} to {self._latest}"
            self._out_of_range.append((index, words))

    def _raise_faults(self) -> None:
        if self._keyless:
            raise InvalidRecordError(_NO_KEY, tuple(self._keyless[:RECORD_ERRORS_MAX]))
        if self._out_of_range:
            errors = tuple(self._out_of_range[:RECORD_ERRORS_MAX])
            raise InvalidTimestampError(errors[0][1], errors)


def _refused_claim(header: BatchHeader) -> InvalidTimestampError:
    problem = "a producer must not claim log append time"
    indexes = range(min(header.record_count, RECORD_ERRORS_MAX))
    return InvalidTimestampError(problem, tuple((index, problem) for index in indexes))


def _level(code: int, config: LogConfig) -> int | None:
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    level = levels.get(code)
    # For gzip, -1 selects the library's default.
    return None if code == GZIP and level == -1 else level


class InspectionNeededError(Exception):
    """The records of an append must be inspected first, which takes more than one turn.

    Attributes:
        inspection: the pending inspection; it holds a copy of the records.
    """

    def __init__(self, inspection: Inspection) -> None:
        super().__init__("the records must be inspected first")
        self.inspection = inspection
