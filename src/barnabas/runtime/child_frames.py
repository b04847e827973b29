"""The frames between a console and the child process that serves some of its requests.

A frame is a length of four bytes and a MessagePack array: a kind, the number of the request, and
the parts of the kind. The child reads bytes that strangers wrote, so the parent takes nothing from
it that could run code: no pickles. The first frame to the child is a pickle of the parent.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import msgspec

# From the parent: a request, its end, and bytes of its response that the client has taken.
REQUEST, GONE, TAKEN = "request", "gone", "taken"
# From the child: the begin of a response, a part of its body, its end, its failure, and a sign of
# life.
START, BODY, END, FAILED, ALIVE = "start", "body", "end", "failed", "alive"

# Bytes of a response that may be on their way to its client. The child waits above it.
WINDOW_BYTES = 256 * 1024
PIECE_BYTES = 64 * 1024
# A frame with headers of a request, or with a piece, is smaller.
FRAME_BYTES_MAX = 1024 * 1024
# The time between two signs of life (s).
ALIVE_S = 2.0

_LENGTH = struct.Struct(">I")


class FrameError(ConnectionError):
    """The other process sent something that is not a frame."""


def encode(*parts: Any) -> bytes:
    """Return a frame."""
    return with_length(msgspec.msgpack.encode(parts))


def with_length(content: bytes) -> bytes:
    """Return bytes with their length before them."""
    return _LENGTH.pack(len(content)) + content


async def read_content(reader: asyncio.StreamReader, limit: int) -> bytes | None:
    """Return the content of the next frame; None at the end of the stream.

    Args:
        reader: The stream.
        limit: The number of bytes of the largest frame.

    Raises:
        FrameError: The frame is too large.
    """
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > limit:
            raise FrameError(f"a frame of {length} bytes, and {limit} are the limit")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None


async def read_frame(reader: asyncio.StreamReader) -> list[Any] | None:
    """Return the parts of the next frame; None at the end of the stream.

    Raises:
        FrameError: The bytes are not a frame.
    """
    content = await read_content(reader, FRAME_BYTES_MAX)
    if content is None:
        return None
    try:
        return msgspec.msgpack.decode(content, type=list[Any])
    except msgspec.DecodeError as error:
        raise FrameError(str(error)) from None
