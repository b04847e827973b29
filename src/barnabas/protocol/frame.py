"""Cuts a stream of bytes into frames: a 4-byte big-endian length, then so many bytes.

Sans-IO, for `get_buffer`/`on_received` style reading. Bytes arrive in a shared buffer that all
connections of a loop take turns to use, so whole frames cost no copy; only a frame that is not
complete when the turn ends moves into a buffer of its own. That one grows in steps with what has
arrived: a forged length costs nothing. A client, whose answers are large and which has chosen whom
to ask, has buffers that are used again (`frame_buffers`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.frame_buffers import FrameBuffers

_unpack_length = struct.Struct(">i").unpack_from

# An own buffer starts with this much, then doubles, up to the size of the frame it waits for.
OWN_BYTES_MIN = 16 * 1024


# What is read at a time while there is little memory for unfinished frames.
_SMALL_READ_BYTES = 32 * 1024


class FrameMemory(Protocol):
    """The memory for unfinished frames of all connections."""

    # Whether it is used up.
    is_full: bool


class FrameSplitter:
    """The receiving side of one connection.

    Args:
        max_frame_bytes: a longer frame is an error (`socket.request.max.bytes`).
        shared: receive buffer, shared with other splitters of the same thread; used between
            `get_buffer` and the end of `received` only.
        large: where the buffers of large frames come from and go back to; None makes them anew.
        memory: while it is full, little is read at a time: what is read has to be kept.
    """

    __slots__ = (
        "_filled",
        "_large",
        "_max_frame_bytes",
        "_memory",
        "_own",
        "_own_end",
        "_shared_view",
        "_small_view",
        "has_more",
        "own_bytes",
    )

    def __init__(
        self,
        max_frame_bytes: int,
        shared: bytearray | None = None,
        large: FrameBuffers | None = None,
        memory: FrameMemory | None = None,
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._shared_view = memoryview(bytearray(64 * 1024) if shared is None else shared)
        assert len(self._shared_view) >= 16
        self._small_view = self._shared_view[:_SMALL_READ_BYTES]
        self._large = large
        self._memory = memory
        # Start of a frame that has not arrived in full, length prefix included; None between
        # frames. `_filled` of its bytes are there, `_own_end` of them may come.
        self._own: memoryview | None = None
        self._own_end = 0
        self._filled = 0
        # Size of the buffer of an unfinished frame; 0 between frames, and for a few bytes of one.
        self.own_bytes = 0
        # While a frame is handed out: whether anything behind it came with it.
        self.has_more = False

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame has arrived."""
        return self._filled

    @property
    def missing_bytes(self) -> int:
        """How much of an unfinished frame has not arrived; 0 before its length has."""
        if self._own is None or self._filled < 4:
            return 0
        return 4 + self._checked_length(self._own, 0) - self._filled

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._own is None:
            if self._memory is not None and self._memory.is_full:
                return self._small_view
            return self._shared_view
        return self._own[self._filled : self._own_end]

    def unfinished_start(self) -> bytes:
        """Return the first four bytes of the unfinished frame; fewer if no more have come."""
        return b"" if self._own is None else bytes(self._own[: min(4, self._filled)])

    def received(self, count: int) -> Iterator[memoryview]:
        """Take note of `count` bytes in the buffer last given; yields every complete frame.

        A frame is a view without its length, valid until the next one is asked for. The iterator
        has to be run to its end before `get_buffer` is called again.

        Raises:
            ProtocolError: a length that is negative or above the limit; the stream is lost.
        """
        if self._own is None:
            return self._cut(self._shared_view, count)
        return self._continue(count)

    def _cut(self, view: memoryview, end: int) -> Iterator[memoryview]:
        """Yield the frames of the shared buffer and keep what is left over."""
        position = 0
        while end - position >= 4:
            start = position + 4
            stop = start + self._checked_length(view, position)
            if stop > end:
                break
            self.has_more = stop < end
            with view[start:stop] as frame:
                yield frame
            position = stop
        if position < end:
            self._keep(view[position:end])

    def _continue(self, count: int) -> Iterator[memoryview]:
        """The unfinished frame got `count` more bytes, none of them beyond its end."""
        own = self._own
        assert own is not None
        self._filled += count
        if self._filled < 4:
            return
        whole = 4 + self._checked_length(own, 0)
        if self._filled == whole:
            self._own = None
            self._filled = 0
            self.own_bytes = 0
            with own[4:whole] as frame:
                yield frame
            self._give_back(own)
        elif self._filled == self._own_end:
            self._own = self._moved(own[: self._filled], whole)
            self._give_back(own)

    def _keep(self, left_over: memoryview) -> None:
        """Move an unfinished frame out of the shared buffer, which others use next."""
        self._filled = len(left_over)
        if self._filled >= 4:
            self._own = self._moved(left_over, 4 + self._checked_length(left_over, 0))
            return
        # The length comes first, on its own, so that a read never runs into the next frame.
        self._own = memoryview(bytearray(4))
        self._own[: self._filled] = left_over
        self._own_end = 4

    def _moved(self, arrived: memoryview, whole: int) -> memoryview:
        """The start of a frame of `whole` bytes in a buffer with room for more of it."""
        size = len(arrived)
        if self._large is not None and whole > OWN_BYTES_MIN:
            buffer = self._large.take(whole, size)
        else:
            buffer = memoryview(bytearray(min(whole, max(OWN_BYTES_MIN, 2 * size))))
        buffer[:size] = arrived
        self._own_end = min(whole, len(buffer))
        self.own_bytes = len(buffer)
        return buffer

    def _give_back(self, buffer: memoryview) -> None:
        if self._large is not None and len(buffer) > OWN_BYTES_MIN:
            self._large.give_back(buffer)

    def _checked_length(self, view: memoryview, position: int) -> int:
        length: int
        (length,) = _unpack_length(view, position)
        if 0 <= length <= self._max_frame_bytes:
            return length
        raise ProtocolError(f"a frame claims {length} bytes; {self._max_frame_bytes} are allowed")
