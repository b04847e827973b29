"""Old message sets as one batch of magic 2: what a broker does with Produce v0 to v2.

The work is done in steps, because it is Python's work per record: whoever runs an event loop does
something else between two of them. What may stand together in a set is what Kafka's LogValidator
takes: messages of one magic, or one compressed message and nothing beside it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.record.batch import LOG_APPEND_TIME, Buffer
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, NONE, decompressed_bytes_max
from barnabas.record.errors import (
    CorruptBatchError,
    DecompressedTooLargeError,
    InvalidMessageSetError,
    MessageSetTooLargeError,
)
from barnabas.record.legacy import Message, decompressed_set, inner_messages, messages
from barnabas.waiting.off_loop import OffLoop, run_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

# Records between two steps: about one millisecond of work.
RECORDS_PER_STEP = 250
# Decompressed on the loop at most; a sixteenth of it is compressed there.
_INLINE_BYTES = 1 << 20


def up_conversion(
    buffer: Buffer,
    compression: int | None = None,
    log_append_time_ms: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    max_batch_bytes: int | None = None,
) -> Generator[OffLoop | None, Any, bytearray | None]:
    """One v2 batch of all records of an old message set, in steps; offsets count from 0.

    Args:
        buffer: a message set of magic 0 or 1 as a client sent it; it must live until the last step.
        compression: of the result; None for that of the set.
        log_append_time_ms: if given, the time of all records; otherwise each keeps its own,
            -1 for messages of magic 0, which have none.
        max_bytes: limit of what the set may decompress to.
        max_batch_bytes: limit of each message as it came and, when nothing is compressed, of the
            batch; None for no limit. It ends the work early.

    Returns:
        The batch; None if the set holds no complete message.

    Raises:
        InvalidMessageSetError: messages that cannot stand together.
        MessageSetTooLargeError: more than `max_batch_bytes`.
        CorruptBatchError: anything malformed.
    """
    builder = BatchBuilder()
    magic, source = -1, NONE
    until_step = RECORDS_PER_STEP
    for message in messages(buffer):
        source = message.compression or source
        if magic >= 0 and (source != NONE or message.magic != magic):
            raise InvalidMessageSetError(
                "a set holds messages of one magic, or one compressed message alone"
            )
        magic = message.magic
        _check_size(message.size, max_batch_bytes)
        for timestamp, key, value in (yield from _contents(message, max_bytes)):
            builder.append(timestamp, key, value)
            if source == NONE and not compression:
                _check_size(builder.estimated_size, max_batch_bytes)
            until_step -= 1
            if not until_step:
                until_step = RECORDS_PER_STEP
                yield None
    if builder.is_empty:
        return None
    builder.compression = source if compression is None else compression
    if log_append_time_ms is not None:
        builder.timestamp_type = LOG_APPEND_TIME
        builder.log_append_time_ms = log_append_time_ms
    if builder.compression == NONE or builder.estimated_size <= _INLINE_BYTES >> 4:
        return builder.build()
    batch: bytearray = yield OffLoop(builder.build)
    return batch


def _check_size(size: int, limit: int | None) -> None:
    if limit is not None and size > limit:
        raise MessageSetTooLargeError(f"{size} bytes are more than the limit of {limit}")


def _contents(
    message: Message, max_bytes: int
) -> Generator[OffLoop | None, Any, Iterable[tuple[int, bytes | None, bytes | None]]]:
    """Timestamp, key and value of a plain message, or of those that a wrapper holds."""
    if message.compression == NONE:
        return [message.content(message.timestamp)]
    try:
        inner_set = decompressed_set(message, min(_INLINE_BYTES, max_bytes))
    except DecompressedTooLargeError:
        size = 0 if message.value is None else len(message.value)
        bytes_max = decompressed_bytes_max(message.compression, size, max_bytes)
        inner_set = yield OffLoop(partial(decompressed_set, message, max_bytes), bytes_max)
    is_append_time = message.timestamp_type == LOG_APPEND_TIME
    return (
        inner.content(message.timestamp if is_append_time else inner.timestamp)
        for inner in inner_messages(message, inner_set)
    )


def to_v2(
    buffer: Buffer,
    compression: int | None = None,
    log_append_time_ms: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """The same at once.

    Raises:
        CorruptBatchError: anything malformed, or an empty set.
    """
    steps = up_conversion(buffer, compression, log_append_time_ms, max_bytes)
    batch: bytearray | None = run_steps(steps)
    if batch is None:
        raise CorruptBatchError("message set is empty")
    return batch
