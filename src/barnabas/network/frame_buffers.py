"""The buffers for large frames that the connections of one client share."""

from __future__ import annotations

import sys
from bisect import insort

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
