"""Input split at a delimiter into batches of pieces, as it arrives."""

from __future__ import annotations

import os
import select
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["InputChunk", "input_chunks"]

_CHUNK_BYTES = 1 << 18
# Time without input after which the pieces read so far are flushed (s).
_IDLE_S = 0.05


class InputChunk(NamedTuple):
    """Pieces of input. An empty list means a pause in the input: flush the sent records."""

    pieces: list[bytes]
    # Number of bytes read for the pieces, including delimiters.
    size: int


def input_chunks(
    files: Sequence[IO[bytes]], delimiter: bytes, *, whole_files: bool
) -> Iterator[InputChunk]:
    """Yield all pieces of all files, in order.

    Args:
        files: Open files, which must have descriptors.
        delimiter: Ends each piece; optional after the last piece.
        whole_files: Whether every file is one piece, regardless of delimiters.
    """
    for file in files:
        if whole_files:
            content = file.read()
            yield InputChunk([content], len(content))
        else:
            yield from _of_file(file.fileno(), delimiter)


def _of_file(descriptor: int, delimiter: bytes) -> Iterator[InputChunk]:
    # Parts of the incomplete piece. They are joined once, even if they arrive slowly.
    parts: list[bytes] = []
    # Number of bytes read but not reported yet.
    size = 0
    # A delimiter may be split between two reads.
    overlap = len(delimiter) - 1
    sent_all = True
    while True:
        if not sent_all and not select.select([descriptor], [], [], _IDLE_S)[0]:
            sent_all = True
            yield InputChunk([], 0)
            continue
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            break
        size += len(data)
        if overlap and parts:
            last = parts.pop()
            parts.append(last[:-overlap])
            data = last[-overlap:] + data
        pieces = data.split(delimiter)
        parts.append(pieces[0])
        if len(pieces) > 1:
            pieces[0] = b"".join(parts)
            parts = [pieces.pop()]
            sent_all = False
            yield InputChunk(pieces, size)
            size = 0
    rest = b"".join(parts)
    if rest:
        yield InputChunk([rest], size)
