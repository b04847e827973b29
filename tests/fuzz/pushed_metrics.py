"""Random MetricsData messages (OpenTelemetry), as clients push them: valid, hostile and damaged."""

from __future__ import annotations

import random

from barnabas.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress

# Field numbers of messages in each other, from MetricsData to the value of a label; the fifth is
# the kind of the data.
_PATH = (1, 2, 2, 5, 1, 7, 2)
_KINDS = (5, 7, 9, 10, 11)
_CODES = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
# Size of the largest messages, in bytes.
_LARGE = 1 << 20


def random_push(rng: random.Random) -> tuple[int, bytes]:
    """Return a compression type and the metrics of a push."""
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(_CODES), rng.randbytes(rng.choice([0, 1, 20, 300]))
    code = rng.choice(_CODES)
    if kind < 0.2:
        return code, bytes(compress(code, bytes(rng.choice([10_000, 20 << 20]))))
    metrics = bytearray(random_metrics(rng))
    if metrics and kind < 0.4:
        metrics[rng.randrange(len(metrics))] ^= 1 << rng.randrange(8)
    return code, bytes(compress(code, metrics))


def random_metrics(rng: random.Random) -> bytes:
    """Return a message with many fields of one kind at one level, inside of the levels above."""
    path = list(_PATH[: rng.randrange(1, len(_PATH) + 1)])
    if len(path) > 3:
        path[3] = rng.choice(_KINDS)
    unit = rng.choice(
        [
            b"\x78\0",
            _part(1, b""),
            _part(1, b"name"),
            _part(2, b""),
            _part(path[-1], b""),
            _part(1, bytes(200)),
            b"\x31" + rng.randbytes(8),
            b"\x21" + rng.randbytes(8),
        ]
    )
    message = unit * rng.choice([1, 10, 1_000, _LARGE // len(unit) // 2])
    for number in reversed(path):
        message = _part(number, message)
        message *= rng.choice([1, 1, 1, max(1, min(1_000, _LARGE // len(message)))])
    return message


def _part(number: int, content: bytes) -> bytes:
    """Return a field that holds bytes."""
    size, length = len(content), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content
