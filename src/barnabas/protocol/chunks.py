"""The parts of an encoded message: bytes in memory, and slices of files that are not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sliceable(Protocol):
    """Bytes that need not be in memory, such as a slice of a file."""

    def __len__(self) -> int: ...

    def read(self) -> bytes: ...


Chunk = bytes | bytearray | memoryview | Sliceable

# The content of a `records` field: a view after decoding, any chunk before encoding.
Records = Chunk


def chunks_length(chunks: Sequence[Chunk]) -> int:
    """Return the number of bytes in all chunks."""
    return sum(map(len, chunks))
