"""How large a batch may be: as it came, as it is kept, and decompressed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import LOG_OVERHEAD
from barnabas.record.compression import DECOMPRESSED_BYTES_MAX
from barnabas.storage.errors import RecordTooLargeError

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader
    from barnabas.storage.config import LogConfig

# A batch may always decompress to so much.
_DECOMPRESSED_BYTES_MIN = 4 << 20
# And to so many times its size. What gzip can do is 1032; zstd can do 30,000, which lets a request
# of 4 KB cost 128 MiB and the reading of 19 million records.
_DECOMPRESSED_RATIO_MAX = 1032


def check_batch_size(header: BatchHeader, config: LogConfig) -> None:
    """Check a batch against `max.message.bytes`.

    Raises:
        RecordTooLargeError
    """
    if header.batch_length + LOG_OVERHEAD > config.max_message_bytes:
        raise RecordTooLargeError(
            f"a batch has {header.size} bytes, max.message.bytes is {config.max_message_bytes}"
        )


def decompressed_limit(header: BatchHeader, config: LogConfig) -> int:
    """Return what the records of a producer's batch may have when they are decompressed."""
    by_size = max(
        _DECOMPRESSED_BYTES_MIN, config.max_message_bytes, header.size * _DECOMPRESSED_RATIO_MAX
    )
    return min(config.max_decompressed_message_bytes, DECOMPRESSED_BYTES_MAX, by_size)
