"""Split a stream of bytes into frames: a 4-byte big-endian length, then that many bytes.

This module does no I/O. `get_buffer` and `received` correspond to the calls of a buffered protocol
of asyncio. All connections of an event loop share one receive buffer, so complete frames are not
copied. Only a frame that is incomplete at the end of a read moves into its own buffer. The start of
a small frame moves back into the shared buffer when the next bytes have arrived behind its place,
so one read receives its rest and the next frames. A large frame stays in its own buffer, which
grows with the data that has arrived, so a forged length costs no memory. A client trusts its
brokers and receives large responses, so its connections share a few buffers (`FrameBuffers`).
"""

from __future__ import annotations

import struct
import sys
from bisect import insort
from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

_unpack_length = struct.Struct(">i").unpack_from

# Size of the length prefix of a frame.
LENGTH_BYTES = 4
# First size of the buffer of a large incomplete frame. It doubles up to the size of the frame.
OWN_BYTES_MIN = 16 * 1024
# An incomplete frame up to this size is received into the shared buffer: to copy its start twice
# costs less than a read of its own.
_SMALL_FRAME_BYTES = 32 * 1024

# Size of one read while the memory for incomplete frames is used up.
_SMALL_READ_BYTES = 32 * 1024


class FrameMemory(Protocol):
    """The memory for incomplete frames of all connections."""

    # Whether the memory is used up.
    is_full: bool


class FrameSplitter:
    """The receiving side of one connection.

    Args:
        max_frame_bytes: Longer frames are an error (`socket.request.max.bytes`).
        shared: Receive buffer that the splitters of one thread share. A splitter uses it only
            between `get_buffer` and the end of `received`.
        large: Pool of buffers for large frames; None: allocate each buffer.
        memory: While it is full, reads are small, because their data may have to be kept.
    """

    __slots__ = (
        "_filled",
        "_large",
        "_memory",
        "_own",
        "_own_end",
        "_shared_view",
        "_small_frame_bytes",
        "_small_view",
        "follows_frame",
        "has_more",
        "max_frame_bytes",
        "own_bytes",
        "refused_start",
    )

    def __init__(
        self,
        max_frame_bytes: int,
        shared: bytearray | None = None,
        large: FrameBuffers | None = None,
        memory: FrameMemory | None = None,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._shared_view = memoryview(bytearray(64 * 1024) if shared is None else shared)
        assert len(self._shared_view) >= 16
        self._small_view = self._shared_view[:_SMALL_READ_BYTES]
        self._small_frame_bytes = min(_SMALL_FRAME_BYTES, len(self._shared_view) // 2)
        self._large = large
        self._memory = memory
        # Start of an incomplete frame, including its length prefix; None between frames.
        # `_filled` bytes of it have arrived. `_own_end` is the end of the next read; 0 if the next
        # bytes are received into the shared buffer, because the frame is small or its length is
        # unknown.
        self._own: memoryview | None = None
        self._own_end = 0
        self._filled = 0
        # Size of the buffer of an incomplete frame (bytes); 0 between frames.
        self.own_bytes = 0
        # The first four bytes of the frame that caused the ProtocolError; empty before the error.
        self.refused_start = b""
        # Whether the incomplete frame began behind another one in the last read.
        self.follows_frame = False
        # While a frame is yielded: whether more bytes followed it in the same read.
        self.has_more = False

    @property
    def pending_bytes(self) -> int:
        """Number of bytes of the incomplete frame that have arrived."""
        return self._filled

    @property
    def missing_bytes(self) -> int:
        """Number of bytes of the incomplete frame that are missing; 0 if its length is unknown."""
        if self._own is None or self._filled < 4:
            return 0
        return 4 + self._checked_length(self._own, 0) - self._filled

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Return the buffer for the next bytes; it is never empty."""
        view = self._shared_view
        if self._memory is not None and self._memory.is_full:
            view = self._small_view
        if self._own is None:
            return view
        if self._own_end:
            return self._own[self._filled : self._own_end]
        # Leave room for the start of a small incomplete frame.
        return view[self._filled :]

    def unfinished_start(self, size: int = LENGTH_BYTES) -> bytes:
        """Return the first bytes of the incomplete frame, or fewer if fewer have arrived."""
        return b"" if self._own is None else bytes(self._own[: min(size, self._filled)])

    def received(self, count: int) -> Iterator[memoryview]:
        """Process `count` new bytes in the last buffer; yield every complete frame.

        A frame is a view without its length prefix, and valid until the next frame is requested.
        The iterator must be exhausted before the next call of `get_buffer`.

        Raises:
            ProtocolError: A length is negative or above the limit. The stream cannot be continued.
        """
        own = self._own
        if own is None:
            return self._cut(self._shared_view, count)
        if self._own_end:
            return self._continue(count)
        filled = self._filled
        self._shared_view[:filled] = own
        self._forget_own()
        return self._cut(self._shared_view, filled + count)

    def _cut(self, view: memoryview, end: int) -> Iterator[memoryview]:
        """Yield the frames in the shared buffer and keep the remaining bytes."""
        position = 0
        while end - position >= 4:
            start = position + 4
            (length,) = _unpack_length(view, position)
            if not 0 <= length <= self.max_frame_bytes:
                raise self._length_error(view, position)
            stop = start + length
            if stop > end:
                break
            self.has_more = stop < end
            with view[start:stop] as frame:
                yield frame
            position = stop
        if position < end:
            self._keep(view[position:end])
            self.follows_frame = position > 0

    def _continue(self, count: int) -> Iterator[memoryview]:
        """Add `count` bytes to the incomplete frame; they never extend beyond its end."""
        own = self._own
        assert own is not None
        self.follows_frame = False
        self._filled += count
        whole = 4 + self._checked_length(own, 0)
        if self._filled == whole:
            self._forget_own()
            self.has_more = False
            with own[4:whole] as frame:
                yield frame
            self._give_back(own)
        elif self._filled == self._own_end:
            self._own = self._copy_to_larger(own[: self._filled], whole)
            self._give_back(own)

    def _keep(self, left_over: memoryview) -> None:
        """Copy an incomplete frame out of the shared buffer, which other connections use next."""
        self._filled = len(left_over)
        if self._filled >= 4:
            whole = 4 + self._checked_length(left_over, 0)
            if whole > self._small_frame_bytes:
                self._own = self._copy_to_larger(left_over, whole)
                return
        self._own = memoryview(bytearray(left_over))
        self.own_bytes = self._filled

    def _forget_own(self) -> None:
        self._own = None
        self._own_end = self._filled = self.own_bytes = 0

    def _copy_to_larger(self, arrived: memoryview, whole: int) -> memoryview:
        """Copy the start of a frame of `whole` bytes into a buffer that has room for more."""
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
        if not 0 <= length <= self.max_frame_bytes:
            raise self._length_error(view, position)
        return length

    def _length_error(self, view: memoryview, position: int) -> ProtocolError:
        self.refused_start = start = bytes(view[position : position + 4])
        return ProtocolError(
            f"the length of a frame is {int.from_bytes(start, signed=True)} bytes; "
            f"at most {self.max_frame_bytes} are allowed"
        )


# A view keeps its whole buffer in memory. So it may be kept only if it is a large part of it, and
# smaller views are cheap to copy.
_KEPT_VIEW_BYTES_MIN = 128 * 1024
_KEPT_VIEW_PART = 8


class _FrameBuffer(bytearray):
    """A buffer that is not reused while a view of it exists."""

    __slots__ = ()


def may_keep(view: memoryview) -> bool:
    """Return whether a part of a frame stays valid after its handler has returned.

    A view that is kept takes at most eight times its own length of memory.
    """
    buffer = view.obj
    return (
        buffer.__class__ is _FrameBuffer
        and len(view) >= _KEPT_VIEW_BYTES_MIN
        and len(view) * _KEPT_VIEW_PART >= len(buffer)
    )


# What `sys.getrefcount` returns for an item of a list that has no other reference. A view of a
# buffer is a further reference.
_ITEMS = [_FrameBuffer()]
_WITHOUT_VIEWS = sys.getrefcount(_ITEMS[0])


class FrameBuffers:
    """The spare buffers for the connections of one client, for frames that exceed a receive buffer.

    A new buffer of several megabytes costs zeroing and page faults. New buffers for all responses
    would take a quarter of a consumer's time. The buffers grow to the size of the responses. A
    consumer keeps views of large record sets instead of copying them. A buffer is reused only when
    no view of it exists, so the last reader of a view need not give anything back.

    Args:
        kept_bytes_max: Limit for the spare buffers; buffers beyond it are freed.
        trusted_bytes: Largest new buffer that is allocated because of a length prefix alone.
    """

    __slots__ = ("_kept_bytes", "_kept_bytes_max", "_spare", "_trusted_bytes")

    def __init__(self, kept_bytes_max: int = 16 << 20, trusted_bytes: int = 4 << 20) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._trusted_bytes = trusted_bytes
        # Smallest buffer first. Views of some of them may still exist.
        self._spare: list[_FrameBuffer] = []
        self._kept_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """Number of bytes in the spare buffers."""
        return self._kept_bytes

    def take(self, frame_bytes: int, arrived_bytes: int) -> memoryview:
        """Return a buffer for a frame with the length prefix `frame_bytes`, and room for more data.

        The buffer may be longer than the frame. It may also be shorter: without a fitting spare
        buffer, the new one is limited to `trusted_bytes` or twice `arrived_bytes`.
        """
        needed = min(frame_bytes, max(self._trusted_bytes, 2 * arrived_bytes))
        spare = self._spare
        for index in range(len(spare)):
            if len(spare[index]) >= needed and sys.getrefcount(spare[index]) == _WITHOUT_VIEWS:
                self._kept_bytes -= len(spare[index])
                return memoryview(spare.pop(index))
        # Round up to a 32nd of a power of two, so the buffer fits frames of similar size.
        step = 1 << max(0, needed.bit_length() - 5)
        return memoryview(_FrameBuffer(-(-needed // step) * step))

    def give_back(self, view: memoryview) -> None:
        """Return a buffer to the pool and release the view, the result of `take`."""
        buffer = view.obj
        assert isinstance(buffer, _FrameBuffer), type(buffer)
        view.release()
        self._kept_bytes += len(buffer)
        insort(self._spare, buffer, key=len)
        while self._kept_bytes > self._kept_bytes_max:
            # Free the small buffers first, because they are cheap to allocate again.
            self._kept_bytes -= len(self._spare.pop(0))
