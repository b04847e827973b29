"""The frames between a console and the child process that serves some of its requests.

A frame is a length of four bytes and a MessagePack array: a kind, the number of the request, and
the parts of the kind. The child reads bytes that strangers wrote, so the parent takes nothing from
it that could run code: no pickles. The first frame to the child is a pickle of the parent.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Any

import msgspec

from barnabas.runtime.offload_task import LENGTH, with_length


class Kind(enum.StrEnum):
    """Kinds of frames."""

    # From the parent: a request, its end, and bytes of its response that the client has taken.
    REQUEST = "request"
    GONE = "gone"
    TAKEN = "taken"
    # From the child: the begin of a response, a part of its body, its end, its failure, and a sign
    # of life.
    START = "start"
    BODY = "body"
    END = "end"
    FAILED = "failed"
    ALIVE = "alive"


# Bytes of a response that may be on their way to its client. The child waits above it.
WINDOW_BYTES = 256 * 1024
PIECE_BYTES = 64 * 1024
# A frame with headers of a request, or with a piece, is smaller.
FRAME_BYTES_MAX = 1024 * 1024
# The time between two signs of life (s).
ALIVE_S = 2.0


class FrameError(ConnectionError):
    """The other process sent something that is not a frame."""


def encode(kind: Kind, *parts: Any) -> bytes:
    """Return a frame."""
    return with_length(msgspec.msgpack.encode((kind, *parts)))


async def read_content(reader: asyncio.StreamReader, limit: int) -> bytes | None:
    """Return the content of the next frame; None at the end of the stream.

    Args:
        reader: The stream.
        limit: The number of bytes of the largest frame.

    Raises:
        FrameError: The frame is too large.
    """
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
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
