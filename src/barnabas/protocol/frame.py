"""Cuts a stream of bytes into frames: a 4-byte big-endian length, then so many bytes.

Sans-IO, for `get_buffer`/`on_received` style reading. Bytes arrive in a shared buffer that all
connections of a loop take turns to use, so whole frames cost no copy; only a frame that is not
complete when the turn ends moves into a buffer of its own. That one grows in steps with what has
arrived: a forged length costs nothing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = struct.Struct(">i")

# An own buffer starts with this much, then doubles, up to the size of the frame it waits for.
OWN_BYTES_MIN = 16 * 1024


class FrameSplitter:
    """The receiving side of one connection.

    Args:
        max_frame_bytes: a longer frame is an error (`socket.request.max.bytes`).
        shared: receive buffer, shared with other splitters of the same thread; used between
            `get_buffer` and the end of `received` only.
    """

    __slots__ = ("_filled", "_max_frame_bytes", "_own", "_own_view", "_shared", "_shared_view")

    def __init__(self, max_frame_bytes: int, shared: bytearray | None = None) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._shared = bytearray(64 * 1024) if shared is None else shared
        assert len(self._shared) >= 16
        self._shared_view = memoryview(self._shared)
        # Start of a frame that has not arrived in full, length prefix included; None between
        # frames. `_filled` of its bytes are there.
        self._own: bytearray | None = None
        self._own_view: memoryview | None = None
        self._filled = 0

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame has arrived."""
        return self._filled

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._own_view is None:
            return self._shared_view
        return self._own_view[self._filled :]

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
            length = self._checked_length(view, position)
            stop = position + 4 + length
            if stop > end:
                break
            with view[position + 4 : stop] as frame:
                yield frame
            position = stop
        if position < end:
            self._keep(view[position:end])

    def _continue(self, count: int) -> Iterator[memoryview]:
        """The unfinished frame got `count` more bytes, none of them beyond its end."""
        own, own_view = self._own, self._own_view
        assert own is not None
        assert own_view is not None
        self._filled += count
        if self._filled < 4:
            return
        length = self._checked_length(own_view, 0)
        if self._filled == 4 + length:
            self._own = self._own_view = None
            self._filled = 0
            with own_view[4 : 4 + length] as frame:
                yield frame
        elif self._filled == len(own):
            self._grow(4 + length)

    def _keep(self, left_over: memoryview) -> None:
        """Move an unfinished frame out of the shared buffer, which others use next."""
        size = len(left_over)
        self._filled = size
        if size < 4:
            # The length comes first, on its own, so that a read never runs into the next frame.
            self._own = bytearray(4)
        else:
            whole = 4 + self._checked_length(left_over, 0)
            self._own = bytearray(min(whole, max(OWN_BYTES_MIN, 2 * size)))
        self._own[:size] = left_over
        self._own_view = memoryview(self._own)

    def _grow(self, whole: int) -> None:
        own = self._own
        assert own is not None
        larger = bytearray(min(whole, max(OWN_BYTES_MIN, 2 * len(own))))
        larger[: self._filled] = own
        self._own = larger
        self._own_view = memoryview(larger)

    def _checked_length(self, view: memoryview, position: int) -> int:
        length: int = _LENGTH.unpack_from(view, position)[0]
        if 0 <= length <= self._max_frame_bytes:
            return length
        raise ProtocolError(f"a frame claims {length} bytes; {self._max_frame_bytes} are allowed")
