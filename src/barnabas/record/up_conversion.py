"""Conversion of old message sets to one batch of magic 2, for Produce v0 to v2.

The conversion runs Python code for each record. It therefore runs in steps, and an event loop can
do other work between the steps. A set may have messages of one magic, or a single compressed
message, as in Kafka's LogValidator.
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
from barnabas.waiting.steps import OffLoop, run_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

# Records per step: about one millisecond of work.
RECORDS_PER_STEP = 250
# Maximum bytes decompressed on the loop; one sixteenth of it is compressed on the loop.
_INLINE_BYTES = 1 << 20


def up_conversion(
    buffer: Buffer,
    compression: int | None = None,
    log_append_time_ms: int | None = None,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    max_batch_bytes: int | None = None,
) -> Generator[OffLoop | None, Any, bytearray | None]:
    """Convert all records of an old message set to one v2 batch in steps, with offsets from 0.

    Args:
        buffer: a message set of magic 0 or 1 from a client; it must stay valid until the last step.
        compression: compression of the result; None for that of the set.
        log_append_time_ms: timestamp of all records; if None, each record keeps its own, which is
            -1 for messages of magic 0.
        max_bytes: maximum decompressed size of the set.
        max_batch_bytes: maximum size of each message as received and, if nothing is compressed, of
            the batch; None for no limit. A larger size stops the conversion early.

    Returns:
        The batch; None if the set has no complete message.

    Raises:
        InvalidMessageSetError: the set combines messages that must not be combined.
        MessageSetTooLargeError: the size exceeds `max_batch_bytes`.
        CorruptBatchError: the data is malformed.
    """
    builder = BatchBuilder()
    magic, source = -1, NONE
    until_step = RECORDS_PER_STEP
    for message in messages(buffer):
        source = message.compression or source
        if magic >= 0 and (source != NONE or message.magic != magic):
            raise InvalidMessageSetError(
                "a set must contain messages of one magic, or a single compressed message"
            )
        magic = message.magic
        _check_size(message.size, max_batch_bytes)
        for timestamp, key, value in (yield from _contents(message, max_bytes)):
            builder.append(timestamp, key, value)
            if (source if compression is None else compression) == NONE:
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
        raise MessageSetTooLargeError(f"{size} bytes exceed the limit of {limit}")


def _contents(
    message: Message, max_bytes: int
) -> Generator[OffLoop | None, Any, Iterable[tuple[int, bytes | None, bytes | None]]]:
    """Return timestamp, key and value of a plain message, or of each message in a wrapper."""
    if message.compression == NONE:
        return [message.content(message.timestamp)]
    try:
        inner_set = decompressed_set(message, min(_INLINE_BYTES, max_bytes))
    except DecompressedTooLargeError:
        size = 0 if message.value is None else len(message.value)
        # The builder needs as much for its records, their compressed form, and the batch.
        bytes_max = 3 * decompressed_bytes_max(message.compression, size, max_bytes)
        work = partial(decompressed_set, message, max_bytes)
        inner_set = yield OffLoop(work, bytes_max, lambda made: 3 * len(made))
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
    """Run `up_conversion` in one turn, and return its batch.

    Raises:
        CorruptBatchError: the data is malformed, or the set is empty.
    """
    steps = up_conversion(buffer, compression, log_append_time_ms, max_bytes)
    batch: bytearray | None = run_steps(steps)
    if batch is None:
        raise CorruptBatchError("message set is empty")
    return batch
