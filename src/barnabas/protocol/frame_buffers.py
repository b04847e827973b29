"""Reusable buffers for frames that are larger than a receive buffer.

A new buffer of several megabytes costs zeroing and page faults. New buffers for all responses would
take a quarter of a consumer's time. The connections of one client therefore share a few buffers,
which grow to the size of its responses.
"""

from __future__ import annotations

from bisect import insort

__all__ = ["FrameBuffers"]


class FrameBuffers:
    """The spare buffers for the connections of one client.

    Args:
        kept_bytes_max: Limit for the spare buffers; buffers beyond it are freed.
        trusted_bytes: Largest new buffer that is allocated because of a length prefix alone.
    """

    __slots__ = ("_kept_bytes", "_kept_bytes_max", "_spare", "_trusted_bytes")

    def __init__(self, kept_bytes_max: int = 16 << 20, trusted_bytes: int = 4 << 20) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._trusted_bytes = trusted_bytes
        # Smallest buffer first.
        self._spare: list[memoryview] = []
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
        for index, buffer in enumerate(self._spare):
            if len(buffer) >= needed:
                self._kept_bytes -= len(buffer)
                return self._spare.pop(index)
        # Round up to an eighth of a power of two, so the buffer fits frames of similar size.
        step = 1 << max(0, needed.bit_length() - 3)
        return memoryview(bytearray(-(-needed // step) * step))

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer to the pool; the caller must not use it any more."""
        self._kept_bytes += len(buffer)
        insort(self._spare, buffer, key=len)
        while self._kept_bytes > self._kept_bytes_max:
            # Free the small buffers first, because they are cheap to allocate again.
            self._kept_bytes -= len(self._spare.pop(0))
