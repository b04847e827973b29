"""A search through the records of one batch, in steps.

A batch may have millions of records, and its decompressed size may be large. So the search yields
after a slice of records, and decompresses a large batch off the loop.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.record.columns import record_slices, uncompressed
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX, decompressed_bytes_max
from barnabas.record.record import DecompressedTooLargeError
from barnabas.waiting.steps import OffLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.record.compiled import CompiledRecord

# Maximum bytes decompressed on the loop.
_INLINE_BYTES = 1 << 20


def find_record(
    batch: bytes, header: BatchHeader, is_found: Callable[[CompiledRecord], bool]
) -> Generator[OffLoop | None, Any, CompiledRecord | None]:
    """Return the first record of a batch for which `is_found` returns True, or None.

    Raises:
        CorruptBatchError: the records cannot be read.
    """
    whole = yield from _uncompressed(batch, header)
    seen = 0
    for part in record_slices(whole, header):
        for record in part:
            if is_found(record):
                return record
        seen += len(part)
        if seen < header.record_count:
            yield None
    return None


def _uncompressed(batch: bytes, header: BatchHeader) -> Generator[OffLoop | None, Any, Buffer]:
    try:
        return uncompressed(batch, 0, header, _INLINE_BYTES)
    except DecompressedTooLargeError:
        bytes_max = decompressed_bytes_max(header.compression, len(batch), DECOMPRESSED_BYTES_MAX)
    whole: Buffer = yield OffLoop(partial(uncompressed, batch, 0, header), bytes_max, len)
    return whole
