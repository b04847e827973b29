"""Size limits of a batch: as sent, as stored, and decompressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import LOG_OVERHEAD
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX
from barnabas.storage.errors import RecordTooLargeError

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader
    from barnabas.storage.config import LogConfig

# Every batch may decompress to this size.
_DECOMPRESSED_BYTES_MIN = 4 << 20
# A batch may also decompress to this multiple of its size. The maximum ratio of gzip is 1032. The
# ratio of zstd can be 30,000, so a request of 4 KB could cost 128 MiB and 19 million records.
_DECOMPRESSED_RATIO_MAX = 1032


def check_batch_size(header: BatchHeader, config: LogConfig) -> None:
    """Check a batch against `max.message.bytes`.

    Raises:
        RecordTooLargeError: the batch is larger.
    """
    if header.batch_length + LOG_OVERHEAD > config.max_message_bytes:
        raise RecordTooLargeError(
            f"a batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}"
        )


def decompressed_limit(header: BatchHeader, config: LogConfig) -> int:
    """Return the maximum decompressed size of the records in a producer's batch."""
    by_size = max(
        _DECOMPRESSED_BYTES_MIN, config.max_message_bytes, header.size * _DECOMPRESSED_RATIO_MAX
    )
    return min(config.max_decompressed_message_bytes, DECOMPRESSED_BYTES_MAX, by_size)
