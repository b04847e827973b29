"""Input cut into pieces at a delimiter, many at a time, as it comes."""

from __future__ import annotations

import os
import select
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["InputChunk", "input_chunks"]

_CHUNK_BYTES = 1 << 18
# An open line that comes slowly is sent after this long without input, in s.
_IDLE_S = 0.05


class InputChunk(NamedTuple):
    """Pieces of input; none of them when input makes a pause: what was sent should leave."""

    pieces: list[bytes]
    # Bytes read for them, delimiters included.
    size: int


def input_chunks(
    files: Sequence[IO[bytes]], delimiter: bytes, *, whole_files: bool
) -> Iterator[InputChunk]:
    """All pieces of all files, in their order.

    Args:
        files: open ones, with descriptors.
        delimiter: stands behind each piece, or at the last one's end may be missing.
        whole_files: every file is one piece, whatever is in it.
    """
    for file in files:
        if whole_files:
            content = file.read()
            yield InputChunk([content], len(content))
        else:
            yield from _of_file(file.fileno(), delimiter)


def _of_file(descriptor: int, delimiter: bytes) -> Iterator[InputChunk]:
    # The piece that has no end yet, in parts: joined once, however slowly it comes.
    parts: list[bytes] = []
    # Bytes read and not yet told of.
    size = 0
    # A delimiter that has begun may end with what is read next.
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
