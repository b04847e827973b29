"""A leader's validation and conversion of batches (Kafka's LogValidator).

This module checks the header of each batch in a request, and reads the records of a usual batch at
once. `batch_inspection` reads all others. The log then sets the offsets and the leader epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    batches,
    check_crc,
    made_header,
    read_header,
    set_max_timestamp,
)
from barnabas.record.columns import uncompressed
from barnabas.record.compiled import crc32c
from barnabas.record.compression import CODES, NONE, ZSTD
from barnabas.record.format_conversion import to_v2
from barnabas.record.producer_records import AT_ONCE_BYTES, largest_timestamp
from barnabas.record.reader import RECORD_BYTES_MIN
from barnabas.record.record import CorruptBatchError, UnsupportedMagicError
from barnabas.storage.config import RESTORE_FINISHING, RESTORE_NONE
from barnabas.storage.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    TopicIsRestoredError,
    UnsupportedCompressionTypeError,
)
from barnabas.storage.log.batch_inspection import InspectionNeededError, too_large_batch
from barnabas.storage.results import AppendOrigin

if TYPE_CHECKING:
    from barnabas.storage.config import LogConfig
    from barnabas.storage.log.batch_inspection import Batches, InspectedRecords


# Module constants, because an enum lookup costs 100 ns, as much as a call.
_CLIENT = AppendOrigin.CLIENT
_COORDINATOR = AppendOrigin.COORDINATOR
_RAFT = AppendOrigin.RAFT

_unpack_header = HEADER.unpack_from

_COMPRESSION_MAX = ZSTD
# With these attributes, the header of a client's batch does not suffice.
_UNUSUAL_ATTRIBUTES = TIMESTAMP_TYPE_FLAG | CONTROL_FLAG
# The part of `batch_length` that is not records.
_HEADER_LENGTH = HEADER_SIZE - LOG_OVERHEAD
# Maximum size of a compressed batch that is decompressed at once. Larger ones rarely fit into
# AT_ONCE_BYTES.
_COMPRESSED_AT_ONCE_BYTES = 32 << 10
# The largest leader epoch, that is, no limit.
_ANY_LEADER_EPOCH = 0x7FFF_FFFF


def read_batches(records: memoryview) -> Batches:
    """Return position and header of each batch after checking the CRCs.

    Raises:
        CorruptRecordError: a batch is invalid, or bytes remain after the last one.
        UnsupportedMagicError: message format 0 or 1.
    """
    size = len(records)
    if size >= HEADER_SIZE:
        header = made_header(_unpack_header(records))
        if header.magic == MAGIC_V2 and header.batch_length + LOG_OVERHEAD == size:
            # A single batch: all that a producer may send, and the common case for a follower.
            if crc32c(records[ATTRIBUTES_POSITION:]) != header.crc:
                raise CorruptRecordError("the CRC of the batch is wrong")
            return [(0, header)]
    return _read_several(records)


def _read_several(records: memoryview) -> Batches:
    found, end = read_followed_batches(records, _ANY_LEADER_EPOCH)
    if end != len(records):
        raise CorruptRecordError(f"{len(records) - end} bytes remain after the last batch")
    return found


def read_followed_batches(
    records: memoryview | bytes, leader_epoch_max: int
) -> tuple[Batches, int]:
    """Read the batches of a leader's fetch response that the follower appends.

    The byte limit of the fetch may truncate the last batch. The function skips a batch with a later
    leader epoch than the follower requested, and all batches after it. The leader may have lost its
    leadership and truncated its log while it sent them.

    Returns:
        Position and header of each batch with a valid CRC, and the end of the last one.

    Raises:
        CorruptRecordError: a batch is invalid.
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
    records: memoryview | InspectedRecords, config: LogConfig, origin: AppendOrigin, now_ms: int
) -> tuple[memoryview, Batches]:
    """Validate the batches of a leader append, and convert them to the topic's format.

    Args:
        records: batches as received, or the result of an inspection, which is not checked again.

    Returns:
        The bytes to write (`records` itself unless they were rebuilt) and their batches.

    Raises:
        CorruptRecordError: a batch is damaged.
        InvalidRecordError: a batch or record is malformed or not allowed.
        InvalidTimestampError: a timestamp is out of range.
        RecordTooLargeError: a batch exceeds max.message.bytes.
        UnsupportedCompressionTypeError: the compression code is unknown.
        InspectionNeededError: a client's records need an inspection that takes several turns.
    """
    if records.__class__ is not memoryview:
        return records.content, records.batches  # type: ignore[union-attr]  # not a memoryview
    if TYPE_CHECKING:
        assert isinstance(records, memoryview)
    try:
        found = read_batches(records)
    except UnsupportedMagicError:
        records = memoryview(_converted(records, config, now_ms))
        found = read_batches(records)
    for _, header in found:
        _check(header, config, origin)
    if _are_kept(records, found, config, origin, now_ms):
        return records, found
    return _inspected(records, found, config, origin, now_ms)


def _are_kept(
    records: memoryview, found: Batches, config: LogConfig, origin: AppendOrigin, now_ms: int
) -> bool:
    """Return whether batches pass as they are. Correct the largest timestamps in their headers."""
    if origin is not _CLIENT:
        return (
            origin is _COORDINATOR
            and config.keeps_coordinator_batches
            and not any(header.attributes & TIMESTAMP_TYPE_FLAG for _, header in found)
        )
    if not config.keeps_batches:
        return False
    latest = now_ms + config.message_timestamp_after_max_ms
    for index, (position, header) in enumerate(found):
        batch = records[position : position + header.size]
        largest = _largest_timestamp(batch, header)
        if largest is None or not NO_TIMESTAMP <= largest <= latest:
            return False
        if largest != header.max_timestamp:
            set_max_timestamp(batch, 0, CREATE_TIME, largest)
            found[index] = (position, read_header(batch))
    return True


def _largest_timestamp(batch: memoryview, header: BatchHeader) -> int | None:
    """Read a batch at once, and return its largest timestamp; None if it must be inspected."""
    attributes = header.attributes
    if attributes & TIMESTAMP_TYPE_FLAG:
        return None
    if attributes & COMPRESSION_MASK:
        if len(batch) > _COMPRESSED_AT_ONCE_BYTES:
            return None
        try:
            batch = memoryview(uncompressed(batch, 0, header, AT_ONCE_BYTES))
        except CorruptBatchError:
            return None
    return largest_timestamp(batch, header)


def ordinary_header(records: memoryview, config: LogConfig, now_ms: int) -> BatchHeader | None:
    """Return the header of a client's batch that `validate` would keep without any change.

    The topic must keep batches unchanged (`LogConfig.keeps_batches`). This is the short form of
    `validate` for joint appends.

    Returns:
        The header. None if `validate` must decide, which may also accept the batch.
    """
    size = len(records)
    if not HEADER_SIZE <= size <= config.max_message_bytes:
        return None
    header = made_header(_unpack_header(records))
    base_offset, length, _, magic, crc, attributes, delta, _, latest, producer_id, epoch, _, _ = (
        header
    )
    count = delta + 1
    if (
        magic != MAGIC_V2
        or length + LOG_OVERHEAD != size
        or base_offset
        or attributes & _UNUSUAL_ATTRIBUTES
        or attributes & COMPRESSION_MASK > _COMPRESSION_MAX
        or not 0 < count == header.record_count
        or (
            count * RECORD_BYTES_MIN > length - _HEADER_LENGTH and not attributes & COMPRESSION_MASK
        )
        or not NO_TIMESTAMP <= latest <= now_ms + config.message_timestamp_after_max_ms
        or (producer_id >= 0 and (header.base_sequence < 0 or epoch < -1))
        or crc32c(records[ATTRIBUTES_POSITION:]) != crc
        or _largest_timestamp(records, header) != latest
    ):
        return None
    return header


def _inspected(
    records: memoryview, found: Batches, config: LogConfig, origin: AppendOrigin, now_ms: int
) -> tuple[memoryview, Batches]:
    """Inspect the records and convert the batches, as the topic or the batches require."""
    # Imported here because most brokers never need it.
    from barnabas.storage.log.batch_inspection import Inspection

    if config.barnabas_remote_restore != RESTORE_NONE and (
        config.barnabas_remote_restore != RESTORE_FINISHING or origin is _CLIENT
    ):
        raise TopicIsRestoredError(
            "the topic is being restored from the remote tier: produce when "
            "`barnabas remote restore` has ended"
        )
    inspection = Inspection(records, found, config, origin, now_ms)
    if origin is not _CLIENT:
        return inspection.run()
    done = inspection.begin()
    if done is None:
        inspection.copy_records()
        raise InspectionNeededError(inspection)
    return done


def _check(header: BatchHeader, config: LogConfig, origin: AppendOrigin) -> None:
    """Check the header of a batch."""
    count = header.record_count
    if count <= 0 or header.last_offset_delta + 1 != count:
        raise InvalidRecordError(
            f"{count} records and a last offset delta of {header.last_offset_delta} do not agree"
        )
    attributes = header.attributes
    if attributes & COMPRESSION_MASK:
        if attributes & COMPRESSION_MASK > _COMPRESSION_MAX:
            raise UnsupportedCompressionTypeError(f"unknown compression {header.compression}")
    elif count * RECORD_BYTES_MIN > header.batch_length - _HEADER_LENGTH:
        raise InvalidRecordError(f"{count} records do not fit into {header.size} bytes")
    if origin is _RAFT:
        return
    if header.batch_length + LOG_OVERHEAD > config.max_message_bytes:
        raise too_large_batch(header, config)
    if origin is _CLIENT:
        if attributes & CONTROL_FLAG:
            raise InvalidRecordError("clients must not write control records")
        if header.base_offset:
            raise InvalidRecordError(f"the base offset is {header.base_offset} instead of 0")
        if header.producer_id >= 0:
            _check_producer(header)


def _check_producer(header: BatchHeader) -> None:
    if header.base_sequence < 0:
        raise InvalidRecordError(f"producer {header.producer_id} sent no sequence number")
    if header.producer_epoch < -1:
        raise InvalidProducerEpochError(f"invalid producer epoch {header.producer_epoch}")


def _converted(records: memoryview, config: LogConfig, now_ms: int) -> bytearray:
    """Return one v2 batch with the messages of an old message set (Produce v0 to v2)."""
    append_time = now_ms if config.has_log_append_time else None
    # "producer" is not a key of CODES: the compression stays as received.
    target = CODES.get(config.compression_type)
    if config.compression_type == "uncompressed":
        target = NONE
    try:
        batch = to_v2(records, target, append_time)
    except CorruptBatchError as error:
        raise CorruptRecordError(str(error)) from None
    # The batch has create time, whatever timestamp type the producer sent: `to_v2` sets it.
    return batch
