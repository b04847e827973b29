"""What a leader checks before it takes batches, and how it changes them (Kafka's LogValidator).

Nothing is done per record unless the topic asks for it: a compacted topic (keys), a limit on old
timestamps, or a compression of its own. Offsets and epoch are patched by the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    CorruptBatchError,
    UnsupportedMagicError,
    batches,
    check_crc,
    made_header,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.checksum import crc32c
from barnabas.record.compression import CODES, GZIP, LZ4, ZSTD
from barnabas.record.errors import DecompressedTooLargeError
from barnabas.record.reader import layouts, records_of, records_payload
from barnabas.record.up_conversion import to_v2
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.config import DECOMPRESSED_BYTES_MAX, LONG_MAX
from barnabas.storage.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)

if TYPE_CHECKING:
    from barnabas.storage.config import LogConfig

Batches: TypeAlias = list[tuple[int, BatchHeader]]

# Looking a member up in its enum costs 100 ns, as much as a call.
_CLIENT = AppendOrigin.CLIENT
_RAFT = AppendOrigin.RAFT

_unpack_header = HEADER.unpack_from

# Places in a record's layout.
_TIMESTAMP_DELTA, _KEY_START = 0, 2

_PRODUCER = "producer"
_CREATE_TIME = "CreateTime"
_NO_TIMESTAMP = -1
_COMPRESSION_MAX = ZSTD
# No batch has a later one.
_ANY_LEADER_EPOCH = 0x7FFF_FFFF


def read_batches(records: memoryview) -> Batches:
    """Position and header of each batch, CRCs checked; every byte must belong to one.

    Raises:
        CorruptRecordError
        UnsupportedMagicError: message format 0 or 1.
    """
    size = len(records)
    if size >= HEADER_SIZE:
        header = made_header(_unpack_header(records))
        if header.magic == MAGIC_V2 and header.batch_length + LOG_OVERHEAD == size:
            # One whole batch: all that a producer may send, and the common case of a follower.
            if crc32c(records[ATTRIBUTES_POSITION:]) != header.crc:
                raise CorruptRecordError("the CRC of the batch is wrong")
            return [(0, header)]
    return _read_several(records)


def _read_several(records: memoryview) -> Batches:
    found, end = read_followed_batches(records, _ANY_LEADER_EPOCH)
    if end != len(records):
        raise CorruptRecordError(f"{len(records) - end} bytes are left behind the last batch")
    return found


def read_followed_batches(
    records: memoryview | bytes, leader_epoch_max: int
) -> tuple[Batches, int]:
    """What of a leader's answer is to be appended.

    The last batch may be cut off by the byte limit of the fetch. A batch of a later leader epoch
    than the follower asked in is left out with all behind it: the leader may have lost its
    leadership, and truncated, while it sent them.

    Returns:
        Position and header of each batch, CRCs checked, and where the last one ends.

    Raises:
        CorruptRecordError
        UnsupportedMagicError: message format 0 or 1.
    """
    found: Batches = []
    end = 0
    try:
        for position, header in batches(records):
            if header.partition_leader_epoch > leader_epoch_max:
                break
            if not check_crc(records, position, header):
                raise CorruptRecordError(f"the CRC of the batch at {position} is wrong")
            found.append((position, header))
            end = position + header.size
    except UnsupportedMagicError as error:
        if error.magic in (0, 1):
            raise
        raise CorruptRecordError(str(error)) from None
    except CorruptBatchError as error:
        raise CorruptRecordError(str(error)) from None
    return found, end


def validate(
    records: memoryview, config: LogConfig, origin: AppendOrigin, now_ms: int
) -> tuple[memoryview, Batches]:
    """Check the batches of an append as leader, and bring them into the topic's form.

    Returns:
        The bytes to write (`records` itself unless they had to be made new) and their batches.

    Raises:
        CorruptRecordError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError,
        UnsupportedCompressionTypeError
    """
    try:
        found = read_batches(records)
    except UnsupportedMagicError:
        records = memoryview(_converted(records, config, now_ms))
        found = read_batches(records)
    latest = now_ms + config.message_timestamp_after_max_ms
    headers_suffice = config.keeps_batches and origin is _CLIENT
    for _, header in found:
        _check(header, config, origin)
        if header.max_timestamp > latest or header.attributes & TIMESTAMP_TYPE_FLAG:
            headers_suffice = False
    if headers_suffice:
        return records, found
    return _looked_into(records, found, config, origin, now_ms)


def _looked_into(
    records: memoryview, found: Batches, config: LogConfig, origin: AppendOrigin, now_ms: int
) -> tuple[memoryview, Batches]:
    """The checks of records, and the changes, that the topic or the batches ask for."""
    if origin is not _RAFT and any(each.attributes & TIMESTAMP_TYPE_FLAG for _, each in found):
        found = _without_claims(records, found, config)
    if config.max_decompressed_message_bytes != DECOMPRESSED_BYTES_MAX and origin is _CLIENT:
        _check_decompressed(records, found, config)
    if origin is _CLIENT and (
        config.is_compacted or config.message_timestamp_before_max_ms != LONG_MAX
    ):
        for position, header in found:
            _check_records(records, position, header, config, now_ms)
    elif origin is not _RAFT and config.message_timestamp_type == _CREATE_TIME:
        latest = now_ms + config.message_timestamp_after_max_ms
        for position, header in found:
            if header.max_timestamp > latest:
                _check_records(records, position, header, config, now_ms)
    if config.compression_type != _PRODUCER:
        records, found = _recompressed(records, found, config)
    if config.message_timestamp_type != _CREATE_TIME and origin is not _RAFT:
        for position, _ in found:
            set_log_append_time(records, position, now_ms)
        found = [(position, read_header(records, position)) for position, _ in found]
    return records, found


def _check(header: BatchHeader, config: LogConfig, origin: AppendOrigin) -> None:
    """The checks of a batch that its header allows."""
    count = header.record_count
    if count <= 0 or header.last_offset_delta + 1 != count:
        raise InvalidRecordError(
            f"{count} records and a last offset delta of {header.last_offset_delta} do not agree"
        )
    attributes = header.attributes
    if attributes & COMPRESSION_MASK > _COMPRESSION_MAX:
        raise UnsupportedCompressionTypeError(f"there is no compression {header.compression}")
    if origin is _RAFT:
        return
    _check_size(header, config)
    if origin is _CLIENT:
        if attributes & CONTROL_FLAG:
            raise InvalidRecordError("clients must not write control records")
        if header.base_offset:
            raise InvalidRecordError(f"the base offset is {header.base_offset}, not 0")
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise InvalidRecordError(f"producer {header.producer_id} sent no sequence")


def _check_size(header: BatchHeader, config: LogConfig) -> None:
    if header.batch_length + LOG_OVERHEAD > config.max_message_bytes:
        raise RecordTooLargeError(
            f"a batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}"
        )


def _check_decompressed(records: memoryview, found: Batches, config: LogConfig) -> None:
    """Refuse batches whose records are larger than the topic wants them, once decompressed."""
    for position, header in found:
        if header.compression:
            try:
                records_payload(records, position, header, config.max_decompressed_message_bytes)
            except DecompressedTooLargeError as error:
                raise InvalidRecordError(str(error)) from None
            except CorruptBatchError as error:
                raise CorruptRecordError(str(error)) from None


def _without_claims(records: memoryview, found: Batches, config: LogConfig) -> Batches:
    """What a producer says of log append time is taken off, or refused where that holds."""
    for position, header in found:
        if not header.attributes & TIMESTAMP_TYPE_FLAG:
            continue
        if config.has_log_append_time:
            problem = "a producer must not claim log append time"
            errors = tuple((index, problem) for index in range(header.record_count))
            raise InvalidTimestampError(problem, errors)
        set_max_timestamp(records, position, CREATE_TIME, header.max_timestamp)
    return [(position, read_header(records, position)) for position, _ in found]


def _check_records(
    records: memoryview, position: int, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    """The checks that need the records themselves."""
    oldest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    keyless, out_of_range = [], []
    try:
        payload = records_payload(records, position, header)
        for index, layout in enumerate(layouts(payload, header.record_count)):
            if config.is_compacted and layout[_KEY_START] < 0:
                keyless.append((index, "a compacted topic needs a key"))
            at = header.base_timestamp + layout[_TIMESTAMP_DELTA]
            if not oldest <= at <= latest and at != _NO_TIMESTAMP:
                out_of_range.append((index, f"timestamp {at} is not within {oldest} to {latest}"))
    except CorruptBatchError as error:
        raise CorruptRecordError(str(error)) from None
    if keyless:
        raise InvalidRecordError("a compacted topic needs a key", tuple(keyless))
    if out_of_range and not config.has_log_append_time:
        raise InvalidTimestampError(out_of_range[0][1], tuple(out_of_range))


def _converted(records: memoryview, config: LogConfig, now_ms: int) -> bytearray:
    """One v2 batch of an old message set (Produce v0 to v2)."""
    append_time = now_ms if config.has_log_append_time else None
    target = None if config.compression_type == _PRODUCER else _target_code(config)
    try:
        batch = to_v2(records, target, append_time)
    except CorruptBatchError as error:
        raise CorruptRecordError(str(error)) from None
    # What the set says about log append time is the sender's; the batch is checked as CreateTime.
    return batch


def _target_code(config: LogConfig) -> int:
    return CODES["none" if config.compression_type == "uncompressed" else config.compression_type]


def _level(code: int, config: LogConfig) -> int | None:
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    level = levels.get(code)
    # gzip's -1 says "the library's default".
    return None if code == GZIP and level == -1 else level


def _recompressed(
    records: memoryview, found: Batches, config: LogConfig
) -> tuple[memoryview, Batches]:
    """The batches in the topic's own compression; those that have it already are kept."""
    target = _target_code(config)
    if all(header.is_control or header.compression == target for _, header in found):
        return records, found
    output = bytearray()
    for position, header in found:
        if header.is_control or header.compression == target:
            output += records[position : position + header.size]
        else:
            output += _rebuilt(records, position, header, target, config)
    made = memoryview(output)
    kept = list(batches(made))
    for _, header in kept:
        if not header.is_control:
            _check_size(header, config)
    return made, kept


def _rebuilt(
    records: memoryview, position: int, header: BatchHeader, target: int, config: LogConfig
) -> bytearray:
    builder = BatchBuilder(
        base_offset=header.base_offset,
        compression=target,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        compression_level=_level(target, config),
        log_append_time_ms=header.max_timestamp,
    )
    try:
        for record in records_of(records, position, header):
            builder.append_at(record)
    except ValueError as error:
        raise CorruptRecordError(f"the batch at {position} cannot be read: {error}") from None
    return builder.build()
